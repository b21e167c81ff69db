// A vision-language-action policy: an image of a grid world and an instruction are read as one sequence,
// every patch and word seeing all others; actions are written one after the other, each seeing those before
// it and, by cross-attention, all that was read, whose keys are computed once. It learns by imitation of a
// planner and is tested by what its actions do to the world. The baseline reads one vector for image and
// instruction.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "fovea/inspect/scene.h"
#include "fovea/models/decoder.h"
#include "fovea/nn/patches.h"
#include "gallery.h"
#include "world.h"

namespace {

using namespace fovea;

constexpr std::int64_t kDim = 64;
constexpr std::int64_t kPatches = World::kSide * World::kSide;

double env(const char* n, double d) {
  const char* v = getenv(n);
  return v ? atof(v) : d;
}

// -- data

struct Episodic {
  std::vector<Episode> episodes;
  Tensor images;
  std::vector<std::vector<std::int32_t>> instructions, actions;
};

Episodic collect(const Episodes& world, Part part, std::int64_t begin, std::int64_t end) {
  Episodic all;
  std::vector<gallery::Image> images;
  for (std::int64_t i = begin; i < end; ++i) {
    all.episodes.push_back(world.make(part, static_cast<std::uint64_t>(i)));
    const Episode& episode = all.episodes.back();
    images.push_back(episode.image);
    all.instructions.push_back(instruction(episode));
    all.actions.emplace_back();
    for (const Action action : episode.plan)
      all.actions.back().push_back(text::kNumSpecialIds + static_cast<std::int32_t>(action));
  }
  all.images = gallery::stack(images);
  return all;
}

// -- model

enum class Reads { patches_and_words, one_vector };

class Policy {
 public:
  Policy(std::uint64_t seed, Reads reads)
      : set_(seed),
        reads_(reads),
        patches_(set_, "patches", {.side = Episodes::kPixels, .dim = kDim}),
        encoder_(set_, "encoder",
                 {.vocabulary = words().size(),
                  .dim = kDim,
                  .feed_forward = 2 * kDim,
                  .heads = (int)env("H", 4),
                  .layers = (int)env("EL", 2)}),
        decoder_(set_, "decoder",
                 {.vocabulary = text::kNumSpecialIds + static_cast<std::int64_t>(kActions.size()),
                  .dim = kDim,
                  .feed_forward = 2 * kDim,
                  .heads = (int)env("H", 4),
                  .layers = (int)env("DL", 2)}) {}

  /// What the decoder reads of image and instruction, and how many rows of it are no padding.
  struct Read {
    nn::Var rows;
    std::vector<std::int64_t> lengths;
    models::DecoderMemory memory() const { return {rows, lengths}; }
  };
  Read read(nn::Context& context, const Tensor& images,
            const std::vector<std::vector<std::int32_t>>& instructions) const {
    const models::Padded words = models::pad(instructions);
    const nn::Var both[] = {patches_(context, images), encoder_.embed(context, words)};
    Read result{.rows = {}, .lengths = words.lengths};
    for (std::int64_t& length : result.lengths) length += kPatches;
    result.rows = encoder_.stack()(context, autograd::concat(both, 1),
                                   {.mask = KeyLengths{}, .lengths = result.lengths});
    if (reads_ == Reads::patches_and_words) return result;
    const nn::Var one = autograd::pool(autograd::Pool::mean, result.rows, result.lengths);
    return {.rows = reshape(one, {words.size, 1, kDim}),
            .lengths = std::vector<std::int64_t>(words.lengths.size(), 1)};
  }
  const models::Decoder& decoder() const { return decoder_; }
  nn::ParameterSet& parameters() { return set_; }

 private:
  nn::ParameterSet set_;
  Reads reads_;
  nn::PatchEmbedding patches_;
  models::Encoder encoder_;
  models::Decoder decoder_;
};

// -- training

void train(gallery::Run& run, Policy& policy, const Episodes& world, const std::string& name) {
  const std::int64_t batch = run.scaled((int)env("B", 64), 8);
  train::fit(
      policy.parameters(),
      {.updates = run.scaled((int)env("U", 1200), 4),
       .schedule = nn::WarmupCosine{.peak = env("LR", 3e-3)},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const Episodic drawn = collect(world, Part::train, (update - 1) * batch, update * batch);
        const Policy::Read read = policy.read(context, drawn.images, drawn.instructions);
        return policy.decoder().loss(context, drawn.actions, read.memory());
      },
      run.progress(name));
}

// -- evaluation

enum class Blank { nothing, image, instruction };

double success(const Policy& policy, const Episodes& world, Part part, std::int64_t count, Blank blank) {
  std::int64_t reached = 0, verb_ok[6] = {}, verb_n[6] = {};
  constexpr std::int64_t kBatch = 100;
  for (std::int64_t begin = 0; begin < count; begin += kBatch) {
    Episodic drawn = collect(world, part, begin, std::min(count, begin + kBatch));
    if (blank == Blank::image) drawn.images.fill(0.0);
    for (auto& words : drawn.instructions) {
      if (blank == Blank::instruction) std::fill(words.begin(), words.end(), text::kPadId);
    }
    nn::Context context;
    const models::Written written =
        policy.decoder().greedy(policy.read(context, drawn.images, drawn.instructions).memory(), 24);
    for (std::size_t b = 0; b < drawn.episodes.size(); ++b) {
      std::vector<Action> actions;
      bool ok = true;
      for (const std::int32_t id : written.ids[b]) {
        ok = ok && id >= text::kNumSpecialIds;
        actions.push_back(static_cast<Action>(id - text::kNumSpecialIds));
      }
      ok = ok && succeeds(drawn.episodes[b], actions);
      reached += ok;
      verb_ok[(int)drawn.episodes[b].verb] += ok;
      verb_n[(int)drawn.episodes[b].verb]++;
    }
  }
  for (int v = 0; v < 6; ++v)
    fmt::print(stderr, "{:.2f} ", double(verb_ok[v]) / std::max<std::int64_t>(1, verb_n[v]));
  fmt::print(stderr, "\n");
  return static_cast<double>(reached) / static_cast<double>(count);
}

void example(gallery::Run& run) {
  const Episodes world(run.seed());
  Policy policy(run.seed(), env("BASE", 0) ? Reads::one_vector : Reads::patches_and_words);
  train(run, policy, world, "policy");
  for (Part part : {Part::train, Part::valid}) {
    run.say(fmt::format("part {} success {:.3f} no image {:.3f} no words {:.3f}", (int)part,
                        success(policy, world, part, run.scaled(500, 10), Blank::nothing),
                        success(policy, world, part, run.scaled(500, 10), Blank::image),
                        success(policy, world, part, run.scaled(500, 10), Blank::instruction)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv,
                      {.name = "act", .title = "From an image and an instruction to actions", .data = ""},
                      example);
}
