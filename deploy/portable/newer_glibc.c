// Functions of newer glibcs that GCC's static libraries call, made of what glibc 2.34 has, so that the portable binary
// starts there. Any thread; they allocate nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct search {
  uintptr_t address;
  struct dl_find_object* found;
};

// Fills `found` and ends the iteration if a loaded segment of the object holds the address.
static int look_at(struct dl_phdr_info* object, size_t size, void* data) {
  struct search* search = data;
  (void)size;
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  int holds = 0;
  void* frame = NULL;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &object->dlpi_phdr[i];
    const uintptr_t first = object->dlpi_addr + segment->p_vaddr;
    const uintptr_t last = first + segment->p_memsz;
    if (segment->p_type == PT_GNU_EH_FRAME) frame = (void*)first;
    if (segment->p_type != PT_LOAD) continue;
    if (first < begin) begin = first;
    if (last > end) end = last;
    if (search->address >= first && search->address < last) holds = 1;
  }
  if (!holds || frame == NULL) return 0;
  memset(search->found, 0, sizeof *search->found);
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_eh_frame = frame;
  return 1;
}

// Glibc 2.35; the unwinder asks for the object that holds an address.
int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(look_at, &search) == 1 ? 0 : -1;
}

// Glibc 2.36; std::random_device draws from it.
uint32_t arc4random(void) {
  uint32_t drawn;
  if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
  return drawn;
}
