#include "fovea/text/gettext.h"

#include <gtest/gtest.h>

#include <set>

#include "fovea/core/error.h"
#include "text/mo_file.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

using std::string_literals::operator""s;

// The pairs of one catalogue of language "fr".
GettextResult collect(const MoEntries& entries, const std::string& charset = "UTF-8") {
  const Scratch scratch;
  MoEntries all{{"", mo_header(charset)}};
  all.insert(all.end(), entries.begin(), entries.end());
  scratch.write("fr/LC_MESSAGES/a.mo", mo_file(all));
  return gettext_corpus({.language = "fr", .roots = {scratch.folder()}});
}

std::vector<SentencePair> pairs(const MoEntries& entries) {
  return collect(entries).corpus.pairs;
}

TEST(Mo, BothByteOrdersContextsAndPlurals) {
  const MoEntries entries{{"", mo_header()},
                          {"Open", "Ouvrir"},
                          {"menu\4Open"s, "Ouvre"},
                          {"%d file\0%d files"s, "%d fichier\0%d fichiers"s}};
  for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
    const GettextCatalogue catalogue = parse_mo(mo_file(entries, order), "test.mo");
    EXPECT_EQ(catalogue.charset, "UTF-8");
    EXPECT_EQ(catalogue.plural_forms, "nplurals=2; plural=(n > 1);");
    ASSERT_EQ(catalogue.messages.size(), 3u);
    EXPECT_EQ(catalogue.messages[1].context, "menu");
    EXPECT_EQ(catalogue.messages[1].singular, "Open");
    EXPECT_EQ(catalogue.messages[2].plural, "%d files");
    EXPECT_EQ(catalogue.messages[2].translations, (std::vector<std::string>{"%d fichier", "%d fichiers"}));
  }
}

TEST(Mo, RefusesStringsOutsideTheFile) {
  const std::string good = mo_file({{"", mo_header()}, {"Open", "Ouvrir"}});
  const auto patched = [&](std::size_t at, std::uint32_t value) {
    std::string bytes = good;
    for (int i = 0; i < 4; ++i) bytes[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> 8 * i);
    return bytes;
  };
  const std::pair<std::string, std::string> cases[] = {{"", "ends inside its header"},
                                                       {good.substr(0, 19), "ends inside its header"},
                                                       {patched(0, 0x12345678), "wrong magic"},
                                                       {patched(4, 2u << 16), "revision 2"},
                                                       {patched(8, 0xFFFFFFFF), "does not fit"},
                                                       {patched(12, 0xFFFFFFFF), "does not fit"},
                                                       {patched(28, 0xFFFFFFF0), "outside the file"},
                                                       {patched(32, 0xFFFFFFFF), "outside the file"},
                                                       {patched(36, 3), "not ended by NUL"}};
  for (const auto& [bytes, expected] : cases) {
    try {
      parse_mo(bytes, "test.mo");
      ADD_FAILURE() << expected;
    } catch (const FileError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

// A thousand entries that all claim the same half of the file.
TEST(Mo, RefusesOverlappingStrings) {
  MoEntries entries(1000, {"x", std::string(3000, 'y')});
  std::string bytes = mo_file(entries);
  const std::size_t table = 28 + 8 * 1000;
  for (std::size_t i = 1; i < 1000; ++i) bytes.replace(table + 8 * i, 8, bytes, table, 8);
  bytes.resize(bytes.size() - 3001 * 900);
  EXPECT_THROW(parse_mo(bytes, "test.mo"), FileError);
}

TEST(Gettext, PluralsGiveAPairEach) {
  EXPECT_EQ(pairs({{"one file\0many files"s, "un fichier\0des fichiers"s}}),
            (std::vector<SentencePair>{{"one file", "un fichier"}, {"many files", "des fichiers"}}));
  EXPECT_EQ(pairs({{"one file\0many files"s, "fichier"}}),
            (std::vector<SentencePair>{{"many files", "fichier"}}));
  EXPECT_EQ(pairs({{"one file\0many files"s, "a1\0b2\0c3 d"s}}).back(), (SentencePair{"many files", "c3 d"}));
}

TEST(Gettext, ParagraphsThatAgreeAreSplit) {
  EXPECT_EQ(pairs({{"First line\nwrapped here.\n\nSecond.\n  -a  option\n",
                    "Première\nligne coupée ici.\n\nDeuxième.\n  -a  choix\n"}}),
            (std::vector<SentencePair>{{"First line wrapped here.", "Première ligne coupée ici."},
                                       {"Second.", "Deuxième."},
                                       {"-a option", "-a choix"}}));
  const GettextResult result = collect({{"One.\n\nTwo.", "Un. Deux."}});
  EXPECT_EQ(result.corpus.size(), 0u);
  EXPECT_EQ(result.report.skipped_lines, 1);
}

TEST(Gettext, AcceleratorsAndPrefixesAreRemoved) {
  const std::vector<std::pair<SentencePair, SentencePair>> cases{
      {{"_File", "_Fichier"}, {"File", "Fichier"}},
      {{"E_xit", "_Quitter"}, {"Exit", "Quitter"}},
      {{"E&xit now", "&Quitter"}, {"Exit now", "Quitter"}},
      {{"Save _As", "Enregistrer sous"}, {"Save As", "Enregistrer sous"}},
      {{"_Edit", "編集(_E)"}, {"Edit", "編集"}},
      {{"bad max_size given", "max_size est mauvais"}, {"bad max_size given", "max_size est mauvais"}},
      {{"AT&T phone", "téléphone AT&T"}, {"AT&T phone", "téléphone AT&T"}},
      {{"less &lt; more", "moins &lt; plus"}, {"less &lt; more", "moins &lt; plus"}},
      {{"keyboard label|Home", "Début"}, {"Home", "Début"}},
      {{"yes | no", "oui ou non"}, {"yes | no", "oui ou non"}}};
  for (const auto& [raw, clean] : cases) {
    EXPECT_EQ(pairs({{raw.source, raw.target}}), std::vector<SentencePair>{clean});
  }
}

TEST(Gettext, JunkDuplicatesAndUntranslatedAreCounted) {
  const GettextResult result = collect({{"%d/%d %s", "%s %d/%d"},
                                        {"Open", "Ouvrir"},
                                        {"_Open", "Ouvre"},
                                        {"Empty", ""},
                                        {"Same", "same"},
                                        {"bell\7", "cloche"},
                                        {"broken", "\xFF\xFE"},
                                        {"long", std::string(200, 'x') + std::string(61 * 2, ' ')},
                                        {"words", [] {
                                           std::string many;
                                           for (int i = 0; i < 61; ++i) many += "mot ";
                                           return many;
                                         }()}});
  EXPECT_EQ(result.report.kept, 2);
  EXPECT_EQ(result.report.skipped_junk, 1);
  EXPECT_EQ(result.report.skipped_duplicate, 1);
  EXPECT_EQ(result.report.skipped_untranslated, 2);
  EXPECT_EQ(result.report.skipped_bad_bytes, 2);
  EXPECT_EQ(result.report.skipped_too_long, 1);
  EXPECT_EQ(
      result.report.to_string(),
      "kept 2 pairs of 1 catalogues; skipped 1 duplicate, 2 untranslated, 1 with few letters, 1 too long, "
      "2 with bad bytes");
}

TEST(Gettext, Charsets) {
  EXPECT_EQ(collect({{"summer", "\xE9t\xE9"}}, "iso-8859-1").corpus.pairs,
            (std::vector<SentencePair>{{"summer", "été"}}));
  const GettextResult other = collect({{"summer", "\xE9t\xE9"}}, "KOI8-R");
  EXPECT_EQ(other.report.skipped_catalogues, 1);
  EXPECT_EQ(other.corpus.size(), 0u);
}

TEST(Gettext, DamagedCataloguesAreCountedAndTheRestRead) {
  const Scratch scratch;
  scratch.write("root/fr/LC_MESSAGES/a.mo", "junk");
  scratch.write("root/fr/LC_MESSAGES/b.mo", mo_file({{"Open", "Ouvrir"}}));
  scratch.write("pack/fr/LC_MESSAGES/c.mo", mo_file({{"Close", "Fermer"}, {"Open", "Ouvre"}}));
  scratch.write("root/fr/LC_MESSAGES/readme.txt", "no catalogue");
  const GettextResult result = gettext_corpus(
      {.language = "fr",
       .roots = {scratch.folder() / "root", scratch.folder() / "none", scratch.folder() / "pack"}});
  EXPECT_EQ(result.corpus.pairs, (std::vector<SentencePair>{{"Open", "Ouvrir"}, {"Close", "Fermer"}}));
  EXPECT_EQ(result.report.catalogues, 3);
  EXPECT_EQ(result.report.skipped_catalogues, 1);
}

TEST(Gettext, SaysThatThereAreNoCatalogues) {
  const Scratch scratch;
  try {
    gettext_corpus({.language = "fr", .roots = {scratch.folder()}});
    ADD_FAILURE();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("no gettext catalogues (*.mo) of language \"fr\""),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find(scratch.folder().string()), std::string::npos);
  }
  for (const char* language : {"", "..", "../etc", "fr/..", "a b"}) {
    EXPECT_THROW(gettext_corpus({.language = language}), InvalidArgument) << language;
  }
}

TEST(Gettext, SplitsShareNoSourceWhateverItsCase) {
  ParallelCorpus corpus;
  for (int i = 0; i < 2000; ++i) {
    corpus.pairs.push_back({"Open file " + std::to_string(i), "a"});
    corpus.pairs.push_back({"Open File " + std::to_string(i), "b"});
  }
  std::size_t all = 0;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    const ParallelCorpus part = select_split(corpus, split);
    all += part.size();
    EXPECT_EQ(part.size() % 2, 0u);
    for (std::size_t i = 0; i < part.size(); i += 2) {
      EXPECT_EQ(part.pairs[i].source.substr(10), part.pairs[i + 1].source.substr(10));
    }
    // 4000 draws at 0.9 or 0.05, in pairs: six standard deviations of the share are less than 0.06.
    EXPECT_NEAR(static_cast<double>(part.size()) / 4000, split == Split::train ? 0.9 : 0.05, 0.06);
  }
  EXPECT_EQ(all, corpus.size());
}

}  // namespace
}  // namespace fovea::text
