#include "kernels/emulated/fibre.h"

#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace quire::gpu {

void enter_fibre(Fibre* fibre) {
  fibre->arrived();
  fibre->entry_(fibre->argument_);
  __builtin_trap();
}

void Fibre::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  // Records the stack that was left if it is a thread's own: the switching thread's.
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
  if (came_from_ != nullptr && came_from_->entry_ == nullptr) {
    came_from_->stack_ = bottom;
    came_from_->stack_bytes_ = size;
  }
#endif
}

}  // namespace quire::gpu

#if defined(__x86_64__)

// Saves the registers that a function must preserve on the old stack, and restores them from the new one.
extern "C" void quire_switch_stack(void** left, void* to);
extern "C" void quire_start_stack();
asm(R"(
.text
.globl quire_switch_stack
.type quire_switch_stack, @function
quire_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quire_switch_stack, .-quire_switch_stack
.globl quire_start_stack
.type quire_start_stack, @function
quire_start_stack:
  movq %r12, %rdi
  call *%r13
  ud2
.size quire_start_stack, .-quire_start_stack
)");

namespace quire::gpu {

Fibre::Fibre(std::byte* stack, std::size_t bytes, Entry entry, void* argument)
    : entry_(entry), argument_(argument), stack_(stack), stack_bytes_(bytes) {
  const auto top = (reinterpret_cast<std::uintptr_t>(stack) + bytes) / 16 * 16;
  auto* frame = reinterpret_cast<void**>(top) - 9;  // six registers, where to return to, and two to align
  for (int i = 0; i < 9; ++i)
    frame[i] = nullptr;
  frame[3] = this;  // r12
  frame[2] = reinterpret_cast<void*>(&enter_fibre);
  frame[6] = reinterpret_cast<void*>(&quire_start_stack);
  stack_pointer_ = frame;
}

void Fibre::switch_to(Fibre& to) {
  to.came_from_ = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.stack_bytes_);
#endif
  quire_switch_stack(&stack_pointer_, to.stack_pointer_);
  arrived();
}

}  // namespace quire::gpu

#else

namespace quire::gpu {

void Fibre::start(unsigned high, unsigned low) {
  enter_fibre(reinterpret_cast<Fibre*>((static_cast<std::uintptr_t>(high) << 32) | low));
}

Fibre::Fibre(std::byte* stack, std::size_t bytes, Entry entry, void* argument)
    : entry_(entry), argument_(argument), stack_(stack), stack_bytes_(bytes) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fibre::start), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fibre::switch_to(Fibre& to) {
  to.came_from_ = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.stack_bytes_);
#endif
  swapcontext(&context_, &to.context_);
  arrived();
}

}  // namespace quire::gpu

#endif
