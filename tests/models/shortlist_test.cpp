#include "fovea/models/shortlist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "files/fuzz_count.h"
#include "files/scratch.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/files/bytes.h"
#include "models/short_output.h"
#include "models/tiny.h"

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;
using Pairs = std::vector<std::pair<Ids, Ids>>;

Ids translations_of(const Shortlist& list, std::int32_t piece) {
  const auto found = list.translations(piece);
  return {found.begin(), found.end()};
}

// das Haus = the house, das Buch = the book, ein Buch = a book (Brown et al.'s kind of example): no pair
// alone says which word is which.
TEST(LearnShortlist, FindsTranslationsThatNoPairShowsAlone) {
  enum : std::int32_t { das = 1, haus, buch, ein, the = 11, house, book, a };
  const Pairs pairs{{{das, haus}, {the, house}}, {{das, buch}, {the, book}}, {{ein, buch}, {a, book}}};
  const Shortlist list = learn_shortlist(
      pairs, {.vocabulary = 16, .translations = 1, .always = 0, .also = {0}, .iterations = 20});
  EXPECT_EQ(translations_of(list, das), Ids{the});
  EXPECT_EQ(translations_of(list, haus), Ids{house});
  EXPECT_EQ(translations_of(list, buch), Ids{book});
  EXPECT_EQ(translations_of(list, ein), Ids{a});
  EXPECT_EQ(translations_of(list, 7), Ids{});
}

// One step by hand. Before it every t(e|f) is 1 / the count of e beside f. The pairs are x -> A A B and y ->
// B, each source with the empty word 0. t(.|x) is 1/2 for A and B, t(.|y) is 1 for B, t(.|0) is 1/2 for both.
// So x gets half of each A and B: A 1, B 1/2, and t(A|x) = 2/3. y gets 2/3 of its B, the empty word 1/3.
TEST(LearnShortlist, AStepSharesTargetsByTheirProbabilities) {
  const Pairs pairs{{{4}, {6, 6, 7}}, {{5}, {7}}};
  const auto of_x = [&](double least) {
    return translations_of(
        learn_shortlist(
            pairs,
            {.vocabulary = 8, .translations = 9, .always = 0, .iterations = 1, .least_probability = least}),
        4);
  };
  EXPECT_EQ(of_x(0.3), (Ids{6, 7}));
  EXPECT_EQ(of_x(0.34), Ids{6});
  EXPECT_EQ(of_x(0.66), Ids{6});
  EXPECT_EQ(of_x(0.67), Ids{});
}

// In the pairs above the empty word gets 1 of A and 1/2 + 1/3 of B, so A is its translation, and one of every
// source. Of equally probable targets the smaller ids are taken, and a list is in the order of its ids.
TEST(LearnShortlist, TheTranslationsOfTheEmptyWordStandEverywhere) {
  const Shortlist list = learn_shortlist(
      Pairs{{{4}, {6, 6, 7}}, {{5}, {7}}},
      {.vocabulary = 8, .translations = 1, .always = 0, .iterations = 1, .least_probability = 0.0});
  EXPECT_TRUE(std::ranges::equal(list.always(), Ids{6}));
  const Pairs equal{{{4}, {7, 6}}}, later{{{4}, {7, 7, 6}}};
  EXPECT_EQ(translations_of(learn_shortlist(equal, {.vocabulary = 8, .translations = 1}), 4), Ids{6});
  EXPECT_EQ(translations_of(learn_shortlist(later, {.vocabulary = 8, .translations = 2}), 4), (Ids{6, 7}));
}

TEST(LearnShortlist, EverySourceHasTheMostFrequentTargets) {
  const Pairs pairs{{{4}, {9, 8, 8}}, {{5}, {8, 9, 7}}};
  const Shortlist list = learn_shortlist(
      pairs, {.vocabulary = 12, .translations = 0, .always = 2, .also = {3}, .iterations = 2});
  EXPECT_TRUE(std::ranges::equal(list.always(), Ids{3, 8, 9}));
  EXPECT_EQ(list.candidates(Ids{5, 4, 5}), (Ids{3, 4, 5, 8, 9}));
}

TEST(LearnShortlist, Refusals) {
  EXPECT_THROW(learn_shortlist(Pairs{{{4}, {9}}}, {.vocabulary = 9}), InvalidArgument);
  EXPECT_THROW(learn_shortlist(Pairs{{{-1}, {2}}}, {.vocabulary = 9}), InvalidArgument);
  EXPECT_THROW(learn_shortlist({}, {.vocabulary = 0}), InvalidArgument);
  EXPECT_THROW(learn_shortlist({}, {.vocabulary = 4, .also = {4}}), InvalidArgument);
  EXPECT_EQ(learn_shortlist({}, {.vocabulary = 4}).vocabulary(), 4);
  EXPECT_THROW(Shortlist({1}, {{}}), InvalidArgument);
  EXPECT_THROW(Shortlist({}, {{1}}), InvalidArgument);
  EXPECT_THROW(Shortlist({}, {{}}).candidates(Ids{1}), InvalidArgument);
}

class ShortlistFile : public files::ScratchFolder {};

Shortlist drawn_list() {
  return {{3, 5}, {{}, {1}, {}, {}, {6, 7}, {4}, {}, {8, 9, 10}, {}, {}, {}, {}, {12}}};
}

TEST_F(ShortlistFile, IsReadAsItWasWritten) {
  const std::string file = path("shortlist.bin");
  for (const Shortlist& list : {drawn_list(), Shortlist({}, {{}})}) {
    list.save(file);
    EXPECT_EQ(Shortlist::load(file, list.vocabulary()), list);
    EXPECT_THROW(Shortlist::load(file, list.vocabulary() + 1), FileError);
  }
}

// Every cut is refused, and so is a byte more.
TEST_F(ShortlistFile, CutFilesAreRefused) {
  const std::string file = path("shortlist.bin");
  drawn_list().save(file);
  const std::string bytes = files::read_file(file, 1 << 20);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write("shortlist.bin", bytes.substr(0, size));
    EXPECT_THROW(Shortlist::load(file, 13), FileError) << size;
  }
  write("shortlist.bin", bytes + '\0');
  EXPECT_THROW(Shortlist::load(file, 13), FileError);
}

TEST_F(ShortlistFile, MutationsAreReadOrRefused) {
  const std::string file = path("shortlist.bin");
  drawn_list().save(file);
  const std::string good = files::read_file(file, 1 << 20);
  PhiloxStream random(7);
  int read = 0;
  for (int n = files::fuzz_count(2000); n > 0; --n) {
    std::string bytes = good;
    for (std::uint32_t changes = 1 + random.next_below(3); changes > 0; --changes) {
      const std::size_t at = random.next_below(static_cast<std::uint32_t>(bytes.size()));
      const auto any = static_cast<char>(random.next_below(256));
      switch (random.next_below(4)) {
        case 0:
          bytes[at] = any;
          break;
        case 1:
          bytes[at] = static_cast<char>(random.next_below(2) == 0 ? 0xff : 0);
          break;
        case 2:
          bytes.insert(at, 1 + random.next_below(4), any);
          break;
        default:
          bytes.erase(at, 1 + random.next_below(4));
          break;
      }
      if (bytes.empty()) bytes = "F";
    }
    write("shortlist.bin", bytes);
    try {
      const Shortlist list = Shortlist::load(file, 13);
      ++read;
      for (const std::int32_t id : list.candidates(Ids{0, 4, 7, 12})) ASSERT_TRUE(id >= 0 && id < 13);
    } catch (const FileError&) {
    }
  }
  EXPECT_GT(read, 0);
}

class ShortDecoding : public testing::TestWithParam<Kind> {};

std::unique_ptr<SequenceToSequence> sharp(const Kind& kind) {
  auto model = kind.make(0.0f, 21);
  perturb(*model, 22, 0.6f);
  return model;
}

std::shared_ptr<const Shortlist> shared(Shortlist list) {
  return std::make_shared<const Shortlist>(std::move(list));
}

// A list of the whole vocabulary: products by row have other bits than packed ones, hence the tolerance.
// Their sums have the model's width of elements.
TEST_P(ShortDecoding, AListOfEverythingChangesNothing) {
  const auto model = sharp(GetParam());
  Ids all(tiny_vocabulary);
  for (std::size_t n = 0; n < all.size(); ++n) all[n] = static_cast<std::int32_t>(n);
  const auto list = shared(Shortlist(all, std::vector<Ids>(tiny_vocabulary)));
  const Sentences sources = random_sentences(6, 7, 5);
  for (const int beam : {1, 4}) {
    const auto expected = decode(*model, sources, {.beam_size = beam}),
               got = decode(*model, sources, {.beam_size = beam, .shortlist = list});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(got[i][0].ids, expected[i][0].ids) << beam;
      EXPECT_NEAR(got[i][0].log_probability, expected[i][0].log_probability, 1e-4);
    }
  }
}

TEST_P(ShortDecoding, WritesCandidatesAloneWithTheirProbabilities) {
  const auto model = sharp(GetParam());
  const auto list = shared(drawn_list());
  const Sentences sources = random_sentences(6, 7, 6);
  const auto decoded = decode(*model, sources, {.beam_size = 1, .shortlist = list});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Ids candidates = list->candidates(sources[i]);
    const Ids& ids = decoded[i][0].ids;
    for (const std::int32_t id : ids) EXPECT_TRUE(std::ranges::binary_search(candidates, id));
    // The definition: log softmax over the candidates, each step the largest.
    const Batch batch = make_batch({sources[i]}, {ids});
    nn::Context context;
    const Tensor rows = model->logits(model->hidden(context, batch, nullptr, nullptr));
    double total = 0.0;
    const bool ended = std::ssize(ids) < 2 * std::ssize(sources[i]) + 10;
    for (std::size_t t = 0; t < ids.size() + (ended ? 1 : 0); ++t) {
      const float* row = rows.data<float>() + static_cast<std::int64_t>(t) * rows.size(1);
      double sum = 0.0, best = -1e30;
      std::int32_t chosen = -1;
      for (const std::int32_t id : candidates) {
        if (id == 0 || id == 2) continue;
        const auto logit = static_cast<double>(row[id]);
        sum += std::exp(logit);
        if (logit > best) best = logit, chosen = id;
      }
      EXPECT_EQ(batch.target_output[t], chosen) << i << ", step " << t;
      total += best - std::log(sum);
    }
    EXPECT_NEAR(decoded[i][0].log_probability, total, 1e-4);
  }
}

// An encoder with recurrences takes the kernel for steps for a source of at most four tokens alone. In a
// padded batch it takes the kernel for chunks, whose sums have another order (docs/recurrence.md). Both may
// give the same bits by chance, with a list and not without it.
TEST_P(ShortDecoding, ASentenceHasTheSameBitsInAnyBatchOnAnyThreads) {
  const auto model = sharp(GetParam());
  model->parameters().pack();
  const Sentences sources = random_sentences(9, 7, 8);
  const DecodeOptions whole{.beam_size = 3}, listed{.beam_size = 3, .shortlist = shared(drawn_list())};
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    const auto together = decode(*model, sources, listed), without = decode(*model, sources, whole);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      SCOPED_TRACE(std::to_string(threads) + " threads, sentence " + std::to_string(i));
      const bool same =
          decode(*model, {sources[i]}, whole)[0][0].log_probability == without[i][0].log_probability;
      const bool steps =
          GetParam().has_recurrent_encoder() && sources[i].size() + 1 <= 4;  // with the end of the sentence
      EXPECT_TRUE(same || steps);
      const Hypothesis alone = decode(*model, {sources[i]}, listed)[0][0];
      EXPECT_EQ(together[i][0].ids, alone.ids);
      EXPECT_NEAR(together[i][0].log_probability, alone.log_probability, steps ? 1e-4 : 0.0);
    }
    set_default_executor(nullptr);
  }
}

TEST_P(ShortDecoding, AListOfAnotherVocabularyIsRefused) {
  const auto model = sharp(GetParam());
  EXPECT_THROW(decode(*model, {{5}}, {.shortlist = shared(Shortlist({}, std::vector<Ids>(6)))}),
               InvalidArgument);
}

// The end is a candidate that no list has to name, and what is never written is none.
TEST_P(ShortDecoding, TheEndIsACandidate) {
  const auto model = sharp(GetParam());
  const Shortlist list({3}, std::vector<Ids>(tiny_vocabulary));
  ShortOutputs outputs(*model, list, {{5, 4}}, 1, std::array<std::int32_t, 1>{4});
  nn::Context context;
  const std::int64_t dim = model->output_weight(context).size(1);
  const auto best =
      outputs.most_probable(Tensor::normal({1, dim}, 3), 9, [](std::size_t) { return std::size_t{0}; });
  Ids ids;
  for (const autograd::Probable& one : best[0]) ids.push_back(one.id);
  std::ranges::sort(ids);
  EXPECT_EQ(ids, (Ids{1, 3, 5}));
  const Shortlist none({}, std::vector<Ids>(tiny_vocabulary));
  EXPECT_THROW(ShortOutputs(*model, none, {{5}}, 1, std::array<std::int32_t, 2>{1, 5}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Models, ShortDecoding, testing::ValuesIn(every_kind()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fovea::models
