// Regions of tensors' memory: used again, merged, given back, by several threads and after a fork.
#include "fovea/core/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "fovea/core/philox.h"
#include "fovea/core/tensor.h"

namespace fovea {
namespace {

#if defined(__SANITIZE_ADDRESS__)
#define NEEDS_REGIONS GTEST_SKIP() << "under the address sanitizer tensors come from operator new"
#else
#define NEEDS_REGIONS static_cast<void>(0)
#endif

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

Tensor floats(std::int64_t bytes) {
  return {DType::f32, {bytes / 4}};
}

TEST(Memory, OfATensorThatEndedServesTheNext) {
  NEEDS_REGIONS;
  const KeepMemory keep;
  std::optional<Tensor> first = floats(3 * mebibyte);
  const std::byte* place = first->raw();
  const TensorMemory before = tensor_memory();
  first.reset();
  EXPECT_EQ(tensor_memory().used, before.used - 3 * mebibyte - 64);  // a line stands in front of the elements
  const Tensor second = floats(3 * mebibyte);
  EXPECT_EQ(second.raw(), place);
  EXPECT_EQ(tensor_memory().requests, before.requests);
}

TEST(Memory, OfASmallBlockServesTheNextWhileItIsKept) {
  NEEDS_REGIONS;
  const KeepMemory keep;
  for (const std::size_t bytes : {1, 64, 65, 300, 5000, 70'000}) {
    void* first = take_small(bytes);
    void* second = take_small(bytes);
    give_small(first, bytes);
    EXPECT_EQ(take_small(bytes), first) << bytes;
    give_small(second, bytes);
    give_small(first, bytes);
  }
}

// Each size has the room that it asks for, also where the block served another size before.
TEST(Memory, OfASmallBlockHasRoom) {
  for (const bool keeps : {false, true}) {
    std::optional<KeepMemory> keep;
    if (keeps) keep.emplace();
    for (std::size_t bytes = 300'000; bytes > 0; bytes -= 1 + bytes / 50) {
      auto* memory = static_cast<unsigned char*>(take_small(bytes));
      EXPECT_GE(malloc_usable_size(memory), bytes);
      std::fill_n(memory, bytes, static_cast<unsigned char>(bytes));
      give_small(memory, bytes);
    }
  }
}

// The pages of a later region may not have been touched yet. One that was requested first has the lower
// number, wherever the system put it.
TEST(Memory, OfTheFirstOfEmptyRegionsIsTakenFirst) {
  NEEDS_REGIONS;
  const KeepMemory keep;
  constexpr std::int64_t size = 900 * mebibyte;  // larger than what other tests have left
  std::vector<Tensor> all{floats(size), floats(size), floats(size)};
  std::vector<const std::byte*> places;
  for (const Tensor& one : all) places.push_back(one.raw());
  for (const std::size_t n : {1, 0, 2}) all[n] = Tensor();
  for (std::size_t n = 0; n < places.size(); ++n) {
    all[n] = floats(size);
    EXPECT_EQ(all[n].raw(), places[n]) << n;
  }
}

// Steps whose shapes differ: a large tensor finds the place of three that ended, in any order.
TEST(Memory, OfNeighboursThatEndedIsOne) {
  NEEDS_REGIONS;
  const KeepMemory keep;
  floats(500 * mebibyte);
  const TensorMemory before = tensor_memory();
  for (const auto& order :
       {std::array{0, 1, 2}, std::array{0, 2, 1}, std::array{2, 1, 0}, std::array{1, 0, 2}}) {
    std::array<Tensor, 3> all{floats(150 * mebibyte), floats(150 * mebibyte), floats(150 * mebibyte)};
    for (const int n : order) all[static_cast<std::size_t>(n)] = Tensor();
    floats(500 * mebibyte);
  }
  EXPECT_EQ(tensor_memory().requests, before.requests);
}

TEST(Memory, IsKeptWhileSomebodyKeepsIt) {
  NEEDS_REGIONS;
  const std::size_t before = tensor_memory().taken;
  std::optional<KeepMemory> keep(std::in_place), another(std::in_place);
  { const std::vector<Tensor> all{floats(200 * mebibyte), floats(300 * mebibyte)}; }
  const std::size_t most = tensor_memory().taken;
  EXPECT_GE(most, before + 400 * mebibyte);
  keep.reset();
  EXPECT_EQ(tensor_memory().taken, most);
  KeepMemory copy = *another;
  another.reset();
  EXPECT_EQ(tensor_memory().taken, most);
  {
    const KeepMemory last = copy;
    copy = last;
  }
  EXPECT_EQ(tensor_memory().taken, most);
}

TEST(Memory, ThatIsReservedIsOneRegion) {
  NEEDS_REGIONS;
  const TensorMemory before = tensor_memory();
  reserve_elements(static_cast<std::size_t>(300 * mebibyte));
  EXPECT_EQ(tensor_memory().requests, before.requests + 1);
  EXPECT_EQ(tensor_memory().taken, before.taken + 320 * mebibyte);  // whole regions of 64
  std::vector<Tensor> parts;
  for (int n = 0; n < 6; ++n) parts.push_back(floats(49 * mebibyte));
  EXPECT_EQ(tensor_memory().requests, before.requests + 1);
  reserve_elements(static_cast<std::size_t>(mebibyte));  // there is room
  EXPECT_EQ(tensor_memory().requests, before.requests + 1);
  reserve_elements(std::size_t{1} << 62);  // more than there can be: nothing happens
  EXPECT_EQ(tensor_memory().requests, before.requests + 1);
  parts.clear();
  EXPECT_EQ(tensor_memory().used, before.used);
}

TEST(Memory, ThatIsReservedHasRoomForTheHeadersOfTensors) {
  NEEDS_REGIONS;
  const std::int64_t requests = tensor_memory().requests;
  reserve_elements(static_cast<std::size_t>(256 * mebibyte));
  const Tensor parts[] = {floats(128 * mebibyte), floats(128 * mebibyte)};
  EXPECT_LE(tensor_memory().requests, requests + 1);
}

TEST(Memory, GoesBackWhenNobodyKeepsIt) {
  NEEDS_REGIONS;
  const Tensor lives = floats(mebibyte);
  for (int n = 0; n < 3; ++n) {
    const std::vector<Tensor> all{floats(200 * mebibyte), floats(300 * mebibyte)};
  }
  const TensorMemory now = tensor_memory();
  EXPECT_LE(now.taken, 4 * 64 * mebibyte) << "of these " << now.used << " in use";
}

// Every tensor holds a number of its own until it ends.
TEST(Memory, OfLivingTensorsIsTheirsAlone) {
  const auto work = [](std::uint64_t seed) {
    PhiloxStream random(seed);
    const auto below = [&](std::int64_t n) {
      return std::min(n - 1, static_cast<std::int64_t>(random.next_uniform() * static_cast<float>(n)));
    };
    std::vector<Tensor> all(20);
    for (int step = 0; step < 2000; ++step) {
      Tensor& one = all[static_cast<std::size_t>(below(20))];
      if (one) {
        const float* values = one.data<float>();
        if (std::adjacent_find(values, values + one.count(), std::not_equal_to<>()) != values + one.count())
          return false;
      }
      one = below(3) == 0 ? Tensor() : floats(64 * (1 + below(below(8) == 0 ? 40000 : 3000)));
      if (one) {
        if (reinterpret_cast<std::uintptr_t>(one.raw()) % 64 != 0) return false;
        one.fill(static_cast<double>(seed * 10000) + step);
      }
    }
    return true;
  };
  bool right[3] = {};
  std::vector<std::thread> threads;
  for (std::uint64_t n = 0; n < 3; ++n) threads.emplace_back([&, n] { right[n] = work(n); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right[0] && right[1] && right[2]);
}

// Other threads allocate all the time, so that some hold the lock at the moment of a fork.
TEST(Memory, WorksInAChild) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int n = 0; n < 2; ++n) {
    threads.emplace_back([&] {
      while (!stop) floats(mebibyte);
    });
  }
  int failures = 0;
  for (int n = 0; n < 100; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      floats(mebibyte);
      _exit(0);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++failures;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace fovea
