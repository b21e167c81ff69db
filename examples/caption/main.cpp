// Captions (Xu et al. 2015): a decoder writes a sentence about an image and, word by word, looks at the
// patches that the next word is about. Nothing tells it where to look; that the patch under a noun is the
// named object is learned from pairs of image and sentence alone. The baseline reads one vector for the whole
// image.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fovea/inspect/scene.h"
#include "fovea/models/decoder.h"
#include "fovea/nn/patches.h"
#include "gallery.h"
#include "scenes.h"

namespace {

using namespace fovea;

constexpr int kPatch = 8, kGrid = Scenes::kSide / kPatch;
constexpr std::int64_t kDim = 64;

// -- model

enum class Reads { patches, one_vector };

double env(const char* n, double d) {
  const char* v = getenv(n);
  return v ? atof(v) : d;
}

class Captioner {
 public:
  Captioner(std::uint64_t seed, Reads reads)
      : set_(seed),
        reads_(reads),
        embed_(set_, "patches", {.side = kPatch, .margin = (int)env("M", 0), .dim = kDim}),
        encoder_(set_, "encoder",
                 {.layers = (int)env("EL", 2),
                  .dim = kDim,
                  .feed_forward = (int)env("FF", 2) * kDim,
                  .heads = (int)env("H", 4),
                  .dropout = (float)env("DROP", 0)}),
        decoder_(set_, "decoder",
                 {.vocabulary = words().size(),
                  .dim = kDim,
                  .feed_forward = 2 * kDim,
                  .heads = (int)env("H", 4),
                  .layers = (int)env("DL", 2),
                  .dropout = (float)env("DROP", 0),
                  .word_dropout = (float)env("WD", 0)}) {}

  models::DecoderMemory see(nn::Context& context, const Tensor& images) const {
    const nn::Var rows = encoder_(context, embed_(context, images), {});
    if (reads_ == Reads::patches) return {rows};
    const std::vector<std::int64_t> all(static_cast<std::size_t>(rows.size(0)), rows.size(1));
    return {reshape(autograd::pool(autograd::Pool::mean, rows, all), {rows.size(0), 1, kDim})};
  }
  const models::Decoder& decoder() const { return decoder_; }
  nn::ParameterSet& parameters() { return set_; }

 private:
  nn::ParameterSet set_;
  Reads reads_;
  nn::PatchEmbedding embed_;
  nn::TransformerStack encoder_;
  models::Decoder decoder_;
};

// -- training

struct Examples {
  std::vector<Scene> scenes;
  Tensor images;
  std::vector<std::vector<std::int32_t>> captions;
};

Examples collect(std::vector<Scene> scenes) {
  Examples examples;
  std::vector<gallery::Image> images;
  for (const Scene& scene : scenes) {
    images.push_back(scene.image);
    examples.captions.push_back(ids_of(scene.caption));
  }
  examples.images = gallery::stack(images);
  examples.scenes = std::move(scenes);
  return examples;
}

// Every image is new. One of three shows a single object, from which names are learned sooner.
void train(gallery::Run& run, Captioner& model, const Scenes& scenes, const std::string& name) {
  const std::int64_t batch = run.scaled((int)env("B", 64), 8);
  train::fit(
      model.parameters(),
      {.updates = run.scaled((int)env("U", 1200), 4),
       .schedule = nn::WarmupCosine{.peak = env("LR", 3e-3)},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        std::vector<Scene> drawn;
        for (std::int64_t i = 0; i < batch; ++i) {
          const auto index = static_cast<std::uint64_t>((update - 1) * batch + i);
          drawn.push_back(scenes.make(Part::train, index, static_cast<int>(1 + index % 3)));
        }
        const Examples examples = collect(std::move(drawn));
        return model.decoder().loss(context, examples.captions, model.see(context, examples.images));
      },
      run.progress(name));
}

// -- evaluation

struct Score {
  std::int64_t scenes = 0, exact = 0, nouns = 0, named = 0, sized = 0, novel = 0, novel_ok = 0, coloured = 0;
  std::vector<std::int64_t> looked_at;  ///< one a layer: nouns whose most read patch lies on the object
};

bool overlaps(const gallery::Sprite& object, int patch) {
  const double x = patch % kGrid * kPatch, y = patch / kGrid * kPatch;
  return x < object.x + object.radius && x + kPatch > object.x - object.radius &&
         y < object.y + object.radius && y + kPatch > object.y - object.radius;
}

// The patch that layer `layer` reads most, mean of its heads, when it writes word `place` of entry `entry`.
int most_read(const Tensor& read, std::int64_t entry, std::size_t place) {
  const float* row =
      read.data<float>() + (entry * read.size(1) + static_cast<std::int64_t>(place)) * read.size(2);
  return static_cast<int>(std::max_element(row, row + read.size(2)) - row);
}

Score evaluate(const Captioner& model, const Scenes& scenes, Part part, std::int64_t count) {
  Score score;
  constexpr std::int64_t kBatch = 100;
  for (std::int64_t begin = 0; begin < count; begin += kBatch) {
    std::vector<Scene> drawn;
    for (std::int64_t i = begin; i < std::min(count, begin + kBatch); ++i)
      drawn.push_back(scenes.make(part, static_cast<std::uint64_t>(i), static_cast<int>(2 + i % 2)));
    const Examples examples = collect(std::move(drawn));
    nn::Context context;
    const models::Written written = model.decoder().greedy(model.see(context, examples.images), 24);
    score.looked_at.resize(written.read.size());
    for (std::size_t b = 0; b < examples.scenes.size(); ++b) {
      const std::vector<gallery::Sprite>& objects = examples.scenes[b].objects;
      const std::vector<std::size_t> places = nouns_in(written.ids[b]),
                                     right = nouns_in(examples.captions[b]);
      score.scenes += 1;
      score.exact += written.ids[b] == examples.captions[b];
      score.nouns += static_cast<std::int64_t>(objects.size());
      for (std::size_t k = 0; k < std::min(objects.size(), places.size()); ++k) {
        if (scenes.part_of(objects[k]) == part) {
          score.novel++;
          score.novel_ok += written.ids[b][places[k]] == examples.captions[b][right[k]];
        }
        score.named += written.ids[b][places[k]] == examples.captions[b][right[k]];
        const int ci = getenv("ORDER") ? 2 : -1, si = getenv("ORDER") ? -1 : -2;
        if (places[k] >= 2 && places[k] + ci < written.ids[b].size()) {
          score.coloured += written.ids[b][places[k] + ci] == examples.captions[b][right[k] + ci];
          score.sized += written.ids[b][places[k] + si] == examples.captions[b][right[k] + si];
        }
        for (std::size_t layer = 0; layer < written.read.size() && written.read[layer].size(2) > 1; ++layer)
          score.looked_at[layer] +=
              overlaps(objects[k], most_read(written.read[layer], static_cast<std::int64_t>(b), places[k]));
      }
    }
  }
  return score;
}

void example(gallery::Run& run) {
  const Scenes scenes(run.seed());
  Captioner model(run.seed(), env("BASE", 0) ? Reads::one_vector : Reads::patches);
  train(run, model, scenes, "captioner");
  for (Part part : {Part::train, Part::valid, Part::test}) {
    if (part == Part::test && !getenv("TEST")) continue;
    const Score s = evaluate(model, scenes, part, run.scaled(500, 10));
    std::string l;
    for (auto x : s.looked_at) l += fmt::format(" {:.3f}", double(x) / s.nouns);
    fmt::print(stderr, "novel {:.3f} size {:.3f} colour {:.3f}\n", double(s.novel_ok) / s.novel,
               double(s.sized) / s.nouns, double(s.coloured) / s.nouns);
    run.say(fmt::format("part {} exact {:.3f} named {:.3f} looked {}", (int)part, double(s.exact) / s.scenes,
                        double(s.named) / s.nouns, l));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "caption", .title = "Words that look at patches"}, example);
}
