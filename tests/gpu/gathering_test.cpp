// Gathered launches of the compute stream: their order, copies, and the graphs that repeat them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/device/gathering_device.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/moves/step_uploads.h"
#include "tests/gpu/device_arrays.h"

namespace quire::test {
namespace {

using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::GatheringDevice;

constexpr std::int64_t kGatheredCols = 32;
constexpr std::int64_t kGatheredRows = 8;

// Steps of six launches: each gathers rows of the previous result, in the order of its own array.
class Shuffler {
 public:
  explicit Shuffler(const EmulatedDeviceOptions& options = {}, bool graphs = true)
      : emulated_(new EmulatedDevice(options)),
        device_(std::unique_ptr<gpu::Device>(emulated_), graphs),
        uploads_(device_),
        gather_(device_.kernel("gather")) {
    std::vector<float> values(kGatheredRows * kGatheredCols);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    for (int i = 0; i < 7; ++i)
      rows_.push_back(std::make_unique<DeviceArray<float>>(device_, values));
  }

  // Runs launches in the given orders of rows and returns the last one's result.
  std::vector<float> step(const std::vector<std::vector<std::int32_t>>& orders, bool repeats) {
    device_.synchronize();
    uploads_.begin(static_cast<std::size_t>(num_steps_++ % 2));
    if (repeats) device_.expect_repetition();
    for (std::size_t i = 0; i < orders.size(); ++i) {
      const gpu::GatherArgs args{.x = rows_[i]->data(),
                                 .x_stride = kGatheredCols,
                                 .rows = uploads_.put(std::span<const std::int32_t>(orders[i])),
                                 .cols = kGatheredCols,
                                 .out = rows_[i + 1]->data(),
                                 .out_stride = kGatheredCols};
      device_.launch(gather_, {.x = static_cast<std::int64_t>(orders[i].size())}, args);
    }
    device_.flush();
    return rows_[orders.size()]->read();
  }
  GatheringDevice& device() { return device_; }
  const EmulatedDevice& emulated() const { return *emulated_; }

 private:
  EmulatedDevice* emulated_;
  GatheringDevice device_;
  gpu::StepUploads uploads_;
  const gpu::Kernel& gather_;
  std::vector<std::unique_ptr<DeviceArray<float>>> rows_;
  int num_steps_ = 0;
};

// Random orders of the rows, of `num_rows` at most.
std::vector<std::vector<std::int32_t>> random_orders(std::mt19937& random, std::int64_t num_rows = kGatheredRows) {
  std::vector<std::vector<std::int32_t>> out(6);
  for (auto& order : out) {
    for (std::int64_t row = 0; row < num_rows; ++row)
      order.push_back(static_cast<std::int32_t>(random() % kGatheredRows));
  }
  return out;
}

}  // namespace

TEST_CASE("what is gathered does what it does one by one, with and without graphs, in every order of the device") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Shuffler plain({.immediate = true}, false);
    Shuffler gathered({.seed = seed});
    std::mt19937 random(17);
    for (int step = 0; step < 60; ++step) {
      INFO("seed " << seed << ", step " << step);
      const auto orders = random_orders(random, 1 + static_cast<std::int64_t>(random() % kGatheredRows));
      const bool repeats = random() % 3 != 0;
      CHECK((gathered.step(orders, repeats) == plain.step(orders, repeats)));
    }
    CHECK(gathered.device().counts().num_graph_launches > 20);
    CHECK(plain.device().counts().num_graph_launches == 0);
  }
}

TEST_CASE("the arrays of a step are one copy, and launches that repeat are one graph for each set of arrays") {
  Shuffler shuffler;
  std::mt19937 random(3);
  const std::int64_t before = shuffler.emulated().num_copies_in();
  for (int step = 0; step < 10; ++step)
    shuffler.step(random_orders(random), true);
  CHECK(shuffler.emulated().num_copies_in() - before == 10);
  CHECK(shuffler.emulated().num_graph_launches() == 10);
  const GatheringDevice::Counts& counts = shuffler.device().counts();
  CHECK(counts.num_copies == 10);
  CHECK(counts.num_plain_launches == 0);
  CHECK(counts.num_graphs == 2);
  CHECK(counts.num_updates == 0);
}

TEST_CASE(
    "of launches that repeat with other arguments those that differ are changed, and that is found where missing") {
  const auto run = [](const EmulatedDeviceOptions& options) {
    Shuffler shuffler(options);
    std::mt19937 random(5);
    std::vector<std::vector<float>> out;
    for (int step = 0; step < 12; ++step) {
      auto orders = random_orders(random);
      orders[5].resize(step < 6 ? kGatheredRows : 3);  // another grid, of one launch
      out.push_back(shuffler.step(orders, true));
    }
    CHECK(shuffler.device().counts().num_graphs == 2);
    CHECK(shuffler.device().counts().num_updates == 2);
    return out;
  };
  CHECK((run({}) == run({.immediate = true})));
  CHECK((run({.ignore_updates = true}) != run({})));
}

TEST_CASE("graphs are bounded in number: those that were used longest ago are given up, and nothing changes") {
  Shuffler plain({.immediate = true}, false);
  Shuffler gathered;
  std::mt19937 random(8);
  for (int step = 0; step < 120; ++step) {
    auto orders = random_orders(random);
    orders.resize(4 + random() % 3);
    for (auto& order : orders)
      order.resize(1 + random() % kGatheredRows);
    CHECK((gathered.step(orders, true) == plain.step(orders, true)));
  }
  CHECK(gathered.device().counts().num_updates > 0);
}

TEST_CASE("whatever reads, writes or waits comes behind what is gathered") {
  EmulatedDevice* emulated = new EmulatedDevice({.seed = 2});
  GatheringDevice device{std::unique_ptr<gpu::Device>(emulated), true};
  const std::vector<float> ones(kGatheredCols, 1.0f);
  const std::vector<float> twos(kGatheredCols, 2.0f);
  DeviceArray<float> from(device, ones);
  DeviceArray<float> to(device, ones);
  const gpu::GatherArgs copy{.x = from.data(),
                             .x_stride = kGatheredCols,
                             .cols = kGatheredCols,
                             .out = to.data(),
                             .out_stride = kGatheredCols};
  const auto launch = [&] { device.launch(device.kernel("gather"), {.x = 1}, copy); };

  launch();
  device.fill(reinterpret_cast<std::byte*>(from.data()), std::byte{0}, kGatheredCols * sizeof(float),
              gpu::Stream::kCompute);
  CHECK(to.read() == ones);
  launch();
  device.copy_to_device(reinterpret_cast<std::byte*>(from.data()), reinterpret_cast<const std::byte*>(twos.data()),
                        kGatheredCols * sizeof(float), gpu::Stream::kCompute);
  CHECK(to.read() == std::vector<float>(kGatheredCols, 0.0f));
  launch();
  const gpu::Event event = device.create_event();
  device.record(event, gpu::Stream::kCompute);
  device.synchronize(event);
  CHECK(std::equal(twos.begin(), twos.end(), to.data()));
  launch();
  device.synchronize();
  CHECK(emulated->is_idle());
}

}  // namespace quire::test
