// Captions (Xu et al. 2015): a decoder writes a sentence about an image. For each word it attends to the
// patches that the word is about. Training does not say where to look: from pairs of image and sentence
// alone the model learns to read the named object's patch for a noun. The baseline reads one vector for the
// whole image.
#include <fmt/format.h>

#include <algorithm>

#include "fovea/models/decoder.h"
#include "fovea/nn/patches.h"
#include "fovea/pictures/scene.h"
#include "gallery.h"
#include "scenes.h"

namespace {

using namespace fovea;

// -- data

struct Examples {
  std::vector<Scene> scenes;
  Tensor images;  ///< [scenes, kSide, kSide, 3]
  std::vector<std::vector<std::int32_t>> captions;
};

// Scenes with `least` to 3 objects, each number equally often.
Examples collect(const Scenes& scenes, Part part, std::int64_t begin, std::int64_t end, int least) {
  Examples examples;
  std::vector<gallery::Image> images;
  for (std::int64_t i = begin; i < end; ++i) {
    const int objects = least + static_cast<int>(i % (4 - least));
    examples.scenes.push_back(scenes.make(part, static_cast<std::uint64_t>(i), objects));
    images.push_back(examples.scenes.back().image);
    examples.captions.push_back(ids_of(examples.scenes.back().caption));
  }
  examples.images = gallery::stack(images);
  return examples;
}

// -- model

enum class Reading { patches, one_vector };
constexpr std::int64_t kPatch = 8, kMargin = 4, kGrid = Scenes::kSide / kPatch;
constexpr std::int64_t kDim = 64, kHeads = 2;
constexpr std::int64_t kLongest = 32;  // words

class Captioner {
 public:
  Captioner(std::uint64_t seed, Reading reads)
      : set_(seed),
        reads_(reads),
        embed_(set_, "patches", {.side = kPatch, .margin = kMargin, .dim = kDim, .hidden = 2 * kDim}),
        encoder_(
            set_, "encoder",
            nn::stack_of(
                {.layers = 1, .dim = kDim, .feed_forward = 2 * kDim, .heads = kHeads, .dropout = 0.15f})),
        decoder_(set_, "decoder",
                 {.vocabulary = words().size(),
                  .dim = kDim,
                  .feed_forward = 2 * kDim,
                  .heads = kHeads,
                  .layers = 2,
                  .dropout = 0.15f,
                  .word_dropout = 0.3f}) {}

  models::DecoderMemory see(nn::Context& context, const Tensor& images) const {
    const nn::Var rows = encoder_(context, embed_(context, images), {});
    if (reads_ == Reading::patches) return {rows};
    const nn::Var one = autograd::pool(autograd::Pool::mean, rows, {});
    return {reshape(one, {one.size(0), 1, kDim})};
  }
  models::Written describe(const Tensor& images) const {
    nn::Context context;
    return decoder_.greedy(see(context, images), kLongest);
  }
  const models::Decoder& decoder() const { return decoder_; }
  nn::ParameterSet& parameters() { return set_; }

 private:
  nn::ParameterSet set_;
  Reading reads_;
  nn::PatchEmbedding embed_;
  nn::TransformerStack encoder_;
  models::Decoder decoder_;
};

// -- training

// Every image is new. A third of them show one object, from which the names are learned sooner.
void train(gallery::Run& run, Captioner& model, const Scenes& scenes, const std::string& name) {
  const std::int64_t batch = run.scaled(64, 4);
  train::fit(
      model.parameters(),
      {.updates = run.scaled(2600, 3), .schedule = nn::WarmupCosine{.peak = 3e-3}, .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const Examples drawn = collect(scenes, Part::train, (update - 1) * batch, update * batch, 1);
        return model.decoder().loss(
            context, drawn.captions, model.see(context, drawn.images),
            {.smoothing = 0.1f, .reduction = {.scale = models::Decoder::mean_scale(drawn.captions)}});
      },
      run.progress(name));
}

// -- evaluation

bool overlaps(const gallery::Sprite& object, std::int64_t patch) {
  const auto x = static_cast<double>(patch % kGrid * kPatch), y = static_cast<double>(patch / kGrid * kPatch);
  return x < object.x + object.radius && x + kPatch > object.x - object.radius &&
         y < object.y + object.radius && y + kPatch > object.y - object.radius;
}

struct Score {
  double scenes = 0, exact = 0;
  double nouns = 0;
  double looked = 0;                    ///< nouns whose most read patch lies on the object
  double by_chance = 0;                 ///< what patches drawn at random would count, on average
  double unseen = 0, unseen_named = 0;  ///< objects of a held-out pair
};

// If a sentence has fewer nouns than the scene has objects, the missing nouns count as wrong, and as not
// looked at.
void count(const Scenes& scenes, const Examples& examples, const models::Written& written, Score& score) {
  for (std::size_t b = 0; b < examples.scenes.size(); ++b) {
    const std::vector<std::int32_t>&said = written.ids[b], &right = examples.captions[b];
    const std::vector<gallery::Sprite>& objects = examples.scenes[b].objects;
    const std::vector<std::size_t> places = nouns_in(said), right_places = nouns_in(right);
    score.scenes += 1;
    score.exact += said == right;
    score.nouns += static_cast<double>(objects.size());
    for (std::size_t k = 0; k < objects.size(); ++k) {
      const bool unseen = scenes.unseen(objects[k]);
      score.unseen += unseen;
      for (std::int64_t patch = 0; patch < kGrid * kGrid; ++patch)
        score.by_chance += static_cast<double>(overlaps(objects[k], patch)) / (kGrid * kGrid);
      if (k >= places.size()) continue;
      score.unseen_named += unseen && said[places[k]] == right[right_places[k]];
      const std::span<const float> read = written.row(written.read.size() - 1, b, places[k]);
      score.looked += overlaps(objects[k], std::max_element(read.begin(), read.end()) - read.begin());
    }
  }
}

Score evaluate(const Captioner& model, const Scenes& scenes, Part part, std::int64_t number) {
  Score score;
  constexpr std::int64_t kBatch = 100, kUntrained = std::int64_t{1} << 32;  // not in training
  for (std::int64_t begin = 0; begin < number; begin += kBatch) {
    const Examples examples =
        collect(scenes, part, kUntrained + begin, kUntrained + std::min(number, begin + kBatch), 2);
    count(scenes, examples, model.describe(examples.images), score);
  }
  return score;
}

// -- picture

pictures::Scene scene_of(const Scene& scene, const std::string& caption) {
  return {.caption = caption,
          .width = Scenes::kSide,
          .height = Scenes::kSide,
          .pixels = scene.image.pixels,
          .weights = {},
          .boxes = {}};
}

// Two unseen scenes, one in each line: the image, then the patches read to write each of its three nouns.
void draw(gallery::Run& run, const Captioner& model, const Scenes& scenes) {
  std::vector<pictures::Scene> panels;
  const Examples examples = collect(scenes, Part::test, 0, 4, 2);
  const models::Written written = model.describe(examples.images);
  for (std::size_t b = 1; b < 4; b += 2) {
    const Scene& scene = examples.scenes[b];
    panels.push_back(scene_of(scene, text::joined(words(), written.ids[b])));
    for (const gallery::Sprite& object : scene.objects) {
      if (scenes.unseen(object))
        panels.back().boxes.push_back({object.x - object.radius, object.y - object.radius, 2 * object.radius,
                                       2 * object.radius, "unseen"});
    }
    for (const std::size_t place : nouns_in(written.ids[b])) {
      const std::span<const float> read = written.row(written.read.size() - 1, b, place);
      panels.push_back(scene_of(scene, words().piece(written.ids[b][place])));
      panels.back().rows = panels.back().columns = kGrid;
      panels.back().weights.assign(read.begin(), read.end());
    }
  }
  run.picture(pictures::draw_scenes(panels, {.title = "Patches read to write a noun", .columns = 4}));
}

// -- the whole

struct Contestant {
  Reading reads;
  const char* name;
};
constexpr Contestant kContestants[] = {{Reading::patches, "reads patches"},
                                       {Reading::one_vector, "reads one vector (baseline)"}};

void state(gallery::Run& run, const Contestant& who, const Score& unseen, const Score& seen) {
  const bool attends = who.reads == Reading::patches;
  const auto figure = [&](const char* what, double value, std::optional<double> at_least = {}) {
    run.figure({.what = what, .of = who.name, .value = value, .at_least = at_least, .at_most = {}});
  };
  figure("sentence exact, unseen pairs", unseen.exact / unseen.scenes,
         attends ? std::optional(0.95) : std::nullopt);
  figure("sentence exact, seen pairs", seen.exact / seen.scenes);
  figure("noun right, objects of unseen pairs", unseen.unseen_named / unseen.unseen);
  if (!attends) return;
  figure("most read patch lies on the object, unseen pairs", unseen.looked / unseen.nouns, 0.9);
  run.figure({.what = "most read patch lies on the object, unseen pairs",
              .of = "a patch drawn at random",
              .value = unseen.by_chance / unseen.nouns});
}

void example(gallery::Run& run) {
  run.report().notes = {
      "Sentences about scenes of two or three objects, each with a pair of colour and shape that no "
      "training image showed. Both models have the same layers, images and updates; the baseline's "
      "decoder reads the mean of the patches instead of the patches.",
      "The picture shows the weights of the last layer, mean of its heads, when a noun is written."};
  const Scenes scenes(run.seed());
  for (const Contestant& who : kContestants) {
    Captioner model(run.seed(), who.reads);
    run.say(fmt::format("{}: {} parameters", who.name, model.parameters().count()));
    train(run, model, scenes, who.name);
    const std::int64_t number = run.scaled(1000, 6);
    state(run, who, evaluate(model, scenes, Part::test, number),
          evaluate(model, scenes, Part::train, number));
    if (who.reads == Reading::patches) draw(run, model, scenes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "caption", .title = "Words that look at patches", .data = ""},
                      example);
}
