#include "fovea/nn/patches.h"

#include <gtest/gtest.h>

#include "fovea/core/executor.h"

namespace fovea::nn {
namespace {

// Every pixel's value is its own position, so each number of a patch shows which pixel it is.
TEST(CutPatches, EveryPixelIsInItsPatch) {
  const std::int64_t batch = 2, height = 6, width = 4, channels = 3, patch = 2;
  Tensor images(DType::f32, {batch, height, width, channels});
  for (std::int64_t i = 0; i < images.count(); ++i) images.data<float>()[i] = static_cast<float>(i);
  const Tensor cut = cut_patches(images, patch);
  EXPECT_EQ(cut.shape(), (Shape{batch, 6, 12}));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t row = y / patch * (width / patch) + x / patch;
          const std::int64_t place = (y % patch * patch + x % patch) * channels + c;
          EXPECT_EQ(cut.view().at<float>({b, row, place}), images.view().at<float>({b, y, x, c}));
        }
      }
    }
  }
  EXPECT_THROW(cut_patches(images, 4), InvalidArgument);
  EXPECT_THROW(cut_patches(images.reshape({batch, height, width * channels}), 2), InvalidArgument);
}

// A margin has the pixels of the neighbouring patches, and nothing beyond the image.
TEST(CutPatches, AWindowReachesIntoTheNeighbours) {
  Tensor image(DType::f32, {1, 4, 6, 1});
  for (std::int64_t i = 0; i < image.count(); ++i) image.data<float>()[i] = static_cast<float>(i + 1);
  const Tensor cut = cut_patches(image, 2, 1);
  EXPECT_EQ(cut.shape(), (Shape{1, 6, 16}));
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t place = 0; place < 16; ++place) {
      const std::int64_t y = i / 3 * 2 - 1 + place / 4, x = i % 3 * 2 - 1 + place % 4;
      const bool inside = y >= 0 && y < 4 && x >= 0 && x < 6;
      EXPECT_EQ(cut.view().at<float>({0, i, place}), inside ? static_cast<float>(y * 6 + x + 1) : 0.0f);
    }
  }
  EXPECT_THROW(cut_patches(image, 2, -1), InvalidArgument);
}

// More windows than one thread takes.
TEST(CutPatches, ThreadsShareTheWindows) {
  const std::int64_t batch = 9, height = 40, width = 24, channels = 3, patch = 8;
  Tensor images = Tensor::normal({batch, height, width, channels}, 1);
  for (const std::int64_t margin : {0, 3}) {
    const std::int64_t window = patch + 2 * margin, across = width / patch, down = height / patch;
    for (const int threads : {1, 3}) {
      const auto pool = make_thread_pool(threads);
      set_default_executor(pool.get());
      const Tensor cut = cut_patches(images, patch, margin);
      set_default_executor(nullptr);
      for (std::int64_t i = 0; i < cut.count(); ++i) {
        const std::int64_t c = i % channels, at = i / channels % (window * window),
                           n = i / (channels * window * window), b = n / (across * down),
                           y = n / across % down * patch - margin + at / window,
                           x = n % across * patch - margin + at % window;
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        ASSERT_EQ(cut.data<float>()[i], inside ? images.view().at<float>({b, y, x, c}) : 0.0f) << i;
      }
    }
  }
}

TEST(GridPositions, RowsAndColumnsHaveTheirOwnHalf) {
  const Tensor grid = grid_positions(3, 5, 8), line = sinusoidal_positions(0, 5, 4, grid_base);
  for (std::int64_t i = 0; i < 15; ++i) {
    for (std::int64_t d = 0; d < 4; ++d) {
      EXPECT_EQ(grid.view().at<float>({i, d}), line.view().at<float>({i / 5, d}));
      EXPECT_EQ(grid.view().at<float>({i, 4 + d}), line.view().at<float>({i % 5, d}));
    }
  }
  EXPECT_THROW(grid_positions(2, 2, 6), InvalidArgument);
}

// A patch's row is its pixels' projection plus its position, whatever its neighbours contain.
TEST(PatchEmbedding, ProjectsEachPatchAlone) {
  ParameterSet set(3);
  const PatchEmbedding embed(set, "patches", {.side = 2, .channels = 1, .dim = 8});
  Tensor image = set.normal("image", {1, 4, 4, 1}, 1.0f).value;
  Context context;
  const Tensor before = embed(context, image).value().clone();
  image.data<float>()[0] += 1.0f;
  const Tensor after = embed(context, image).value();
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t d = 0; d < 8; ++d) {
      const float change = i == 0 ? embed.projection.weight->value.view().at<float>({d, 0}) : 0.0f;
      EXPECT_NEAR(after.view().at<float>({0, i, d}) - before.view().at<float>({0, i, d}), change, 1e-5);
    }
  }
}

TEST(PatchEmbedding, HasAHiddenLayerIfConfigured) {
  ParameterSet set(3);
  const PatchEmbedding embed(set, "patches", {.side = 2, .channels = 1, .dim = 8, .hidden = 6});
  EXPECT_EQ(set.at("patches.hidden.weight").value.shape(), (Shape{6, 4}));
  EXPECT_EQ(set.at("patches.weight").value.shape(), (Shape{8, 6}));
  Tensor image(DType::f32, {1, 2, 2, 1});
  image.fill(1.0f);
  set.at("patches.hidden.weight").value.fill(-1.0f);  // relu makes 0 of it
  Context context;
  const Tensor rows = embed(context, image).value();
  const Tensor place = grid_positions(1, 1, 8);
  for (std::int64_t d = 0; d < 8; ++d)
    EXPECT_EQ(rows.data<float>()[d], embed.projection.bias->value.data<float>()[d] + place.data<float>()[d]);
}

}  // namespace
}  // namespace fovea::nn
