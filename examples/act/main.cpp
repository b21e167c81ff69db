// A vision-language-action policy. An image of a table and an instruction are read as one sequence, in
// which every patch and word sees all others. Actions are written one after the other. Each sees the
// actions before it and, by cross-attention, the whole image and instruction, whose keys are computed once.
// The policy imitates a planner and is tested by the effect of its actions on the world. In the baseline
// nothing attends to image and instruction: the decoder is given the mean of their rows.
#include <fmt/format.h>

#include <algorithm>

#include "fovea/models/decoder.h"
#include "fovea/nn/patches.h"
#include "fovea/pictures/scene.h"
#include "gallery.h"
#include "world.h"

namespace {

using namespace fovea;

constexpr std::int64_t kDim = 64;
constexpr std::int64_t kLongest = 24;  // actions
constexpr std::int64_t kPatches = World::kSide * World::kSide;

// -- data

struct Demonstrations {
  std::vector<Episode> episodes;
  Tensor images;
  std::vector<std::vector<std::int32_t>> instructions, actions;
};

Demonstrations collect(const Episodes& world, Part part, std::int64_t begin, std::int64_t end,
                       int least = 3) {
  Demonstrations shown;
  std::vector<gallery::Image> images;
  for (std::int64_t i = begin; i < end; ++i) {
    shown.episodes.push_back(
        world.make(part, static_cast<std::uint64_t>(i), least + static_cast<int>(i % (4 - least))));
    const Episode& episode = shown.episodes.back();
    images.push_back(episode.image);
    shown.instructions.push_back(instruction(episode));
    shown.actions.emplace_back();
    for (const Action action : episode.plan)
      shown.actions.back().push_back(text::kNumSpecialIds + static_cast<std::int32_t>(action));
  }
  shown.images = gallery::stack(images);
  return shown;
}

// -- model

// With attention, patches and words see each other, and actions see both. Without attention each row sees
// itself, and the actions read the mean of all rows.
enum class Reading { by_attention, mean };

class Policy {
 public:
  Policy(std::uint64_t seed, Reading reads)
      : set_(seed),
        reads_(reads),
        patches_(set_, "patches", {.side = Episodes::kPixels, .dim = kDim}),
        encoder_(
            set_, "encoder",
            {.vocabulary = words().size(), .dim = kDim, .feed_forward = 2 * kDim, .heads = 4, .layers = 2}),
        decoder_(set_, "decoder",
                 {.vocabulary = text::kNumSpecialIds + static_cast<std::int64_t>(kActions.size()),
                  .dim = kDim,
                  .feed_forward = 2 * kDim,
                  .heads = 4,
                  .layers = 2}) {}

  /// The rows of image and instruction that the decoder reads, and how many of them are no padding.
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
    const Mask itself = SlidingWindow{.lookback = 0, .lookahead = 0};
    const Mask mask = reads_ == Reading::by_attention ? KeyLengths{} : KeyLengths{} & itself;
    result.rows =
        encoder_.stack()(context, autograd::concat(both, 1), {.mask = mask, .lengths = result.lengths});
    if (reads_ == Reading::by_attention) return result;
    const nn::Var one = autograd::pool(autograd::Pool::mean, result.rows, result.lengths);
    return {.rows = reshape(one, {words.size, 1, kDim}),
            .lengths = std::vector<std::int64_t>(words.lengths.size(), 1)};
  }
  models::Written act(const Demonstrations& shown) const {
    nn::Context context;
    return decoder_.greedy(read(context, shown.images, shown.instructions).memory(), kLongest);
  }
  const models::Decoder& decoder() const { return decoder_; }
  nn::ParameterSet& parameters() { return set_; }

 private:
  nn::ParameterSet set_;
  Reading reads_;
  nn::PatchEmbedding patches_;
  models::Encoder encoder_;
  models::Decoder decoder_;
};

// -- training

void train(gallery::Run& run, Policy& policy, const Episodes& world, const std::string& name) {
  const std::int64_t batch = run.scaled(64, 8);
  train::fit(
      policy.parameters(),
      {.updates = run.scaled(1600, 4), .schedule = nn::WarmupCosine{.peak = 3e-3}, .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const Demonstrations drawn = collect(world, Part::train, (update - 1) * batch, update * batch, 1);
        const Policy::Read read = policy.read(context, drawn.images, drawn.instructions);
        return policy.decoder().loss(context, drawn.actions, read.memory(),
                                     {.reduction = {.scale = models::Decoder::mean_scale(drawn.actions)}});
      },
      run.progress(name));
}

// -- evaluation

enum class Blank { nothing, image, instruction };

// The actions of `ids`, up to the first id that is no action.
std::vector<Action> actions_of(const std::vector<std::int32_t>& ids) {
  std::vector<Action> actions;
  for (const std::int32_t id : ids) {
    if (id < text::kNumSpecialIds) break;
    actions.push_back(static_cast<Action>(id - text::kNumSpecialIds));
  }
  return actions;
}

// From this index on, no episode of Part::train is used in training.
constexpr std::int64_t kUntrained = std::int64_t{1} << 32;

double success(const Policy& policy, const Episodes& world, Part part, std::int64_t count,
               Blank blank = Blank::nothing) {
  std::int64_t reached = 0;
  constexpr std::int64_t kBatch = 100;
  for (std::int64_t begin = 0; begin < count; begin += kBatch) {
    Demonstrations shown =
        collect(world, part, kUntrained + begin, kUntrained + std::min(count, begin + kBatch));
    if (blank == Blank::image) shown.images.fill(0.0);
    for (auto& words : shown.instructions) {
      if (blank == Blank::instruction) std::fill(words.begin(), words.end(), text::kPadId);
    }
    const models::Written written = policy.act(shown);
    for (std::size_t b = 0; b < shown.episodes.size(); ++b)
      reached += succeeds(shown.episodes[b], actions_of(written.ids[b]));
  }
  return static_cast<double>(reached) / static_cast<double>(count);
}

// Seconds for the actions of one episode after another, without reading the image: the best of three
// rounds.
double seconds_to_act(const Policy& policy, const Episodes& world, std::int64_t count, models::Reuse reuse) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    double taken = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Demonstrations one = collect(world, Part::test, i, i + 1);
      nn::Context context;
      const Policy::Read read = policy.read(context, one.images, one.instructions);
      const gallery::Stopwatch acting;
      policy.decoder().greedy(read.memory(), kLongest, reuse);
      taken += acting.seconds();
    }
    best = std::min(best, taken / static_cast<double>(count));
  }
  return best;
}

// -- picture

// An unseen task of seven actions: the image with its instruction, then the patches that were read to
// choose each action.
void draw(gallery::Run& run, const Policy& policy, const Episodes& world) {
  std::int64_t index = 0;
  while (world.make(Part::test, static_cast<std::uint64_t>(index), 3).plan.size() != 7) ++index;
  const Demonstrations one = collect(world, Part::test, index, index + 1);
  const models::Written written = policy.act(one);
  const Episode& episode = one.episodes[0];
  const int side = World::kSide * Episodes::kPixels;
  pictures::Scene image{.caption = text::joined(words(), one.instructions[0]),
                        .width = side,
                        .height = side,
                        .pixels = episode.image.pixels,
                        .weights = {},
                        .boxes = {}};
  std::vector<pictures::Scene> panels{image};
  const std::vector<Action> actions = actions_of(written.ids[0]);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    pictures::Scene panel = image;
    panel.caption = fmt::format("{}. {}", i + 1, kActions.at(static_cast<std::size_t>(actions[i])));
    panel.rows = panel.columns = World::kSide;
    const std::span<const float> read = written.row(0, 0, i);
    panel.weights.assign(read.begin(), read.begin() + kPatches);
    World now = episode.world;
    execute(now, {actions.begin(), actions.begin() + static_cast<std::ptrdiff_t>(i)});
    panel.boxes.push_back({static_cast<double>(now.gripper.x * Episodes::kPixels),
                           static_cast<double>(now.gripper.y * Episodes::kPixels), Episodes::kPixels,
                           Episodes::kPixels, i == 0 ? "gripper" : ""});
    panels.push_back(panel);
  }
  run.picture(pictures::draw_scenes(panels, {.title = "Patches read to choose an action", .columns = 4}));
}

// -- the whole

struct Contestant {
  Reading reads;
  const char* name;
};
constexpr Contestant kContestants[] = {{Reading::by_attention, "reads by attention"},
                                       {Reading::mean, "reads the mean (baseline)"}};

void state(gallery::Run& run, const Contestant& who, const Policy& policy, const Episodes& world) {
  const std::int64_t number = run.scaled(1000, 6);
  const bool attends = who.reads == Reading::by_attention;
  gallery::Figure unseen{.what = "success, unseen triples", .of = who.name};
  unseen.value = success(policy, world, Part::test, number);
  if (attends) unseen.at_least = 0.95;
  run.figure(unseen);
  run.figure({.what = "success, seen triples",
              .of = who.name,
              .value = success(policy, world, Part::train, number)});
  if (!attends) return;
  run.figure({.what = "success, unseen triples",
              .of = "the same, image blank",
              .value = success(policy, world, Part::test, number, Blank::image),
              .at_most = 0.4});
  run.figure({.what = "success, unseen triples",
              .of = "the same, instruction blank",
              .value = success(policy, world, Part::test, number, Blank::instruction),
              .at_most = 0.4});
  const std::int64_t timed = run.scaled(100, 2);
  const double kept = seconds_to_act(policy, world, timed, models::Reuse::on);
  const double again = seconds_to_act(policy, world, timed, models::Reuse::off);
  run.figure({.what = "all actions of an episode",
              .of = "keys kept",
              .value = kept,
              .unit = gallery::Unit::seconds});
  run.figure({.what = "all actions of an episode",
              .of = "keys computed again for each",
              .value = again,
              .unit = gallery::Unit::seconds});
}

void example(gallery::Run& run) {
  run.report().notes = {
      "Tasks on a table, each a verb, a colour and a shape that no training task put together. "
      "Success: the actions, executed, reach the goal and change nothing else. Both policies have "
      "the same layers, episodes and updates; in the baseline no patch or word sees another, and the "
      "decoder reads the mean of all.",
      "The picture shows the weights of the decoder's first layer on the image, mean of its heads."};
  const Episodes world(run.seed());
  for (const Contestant& who : kContestants) {
    Policy policy(run.seed(), who.reads);
    run.say(fmt::format("{}: {} parameters", who.name, policy.parameters().count()));
    train(run, policy, world, who.name);
    state(run, who, policy, world);
    if (who.reads == Reading::by_attention) draw(run, policy, world);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv,
                      {.name = "act", .title = "From an image and an instruction to actions", .data = ""},
                      example);
}
