// Touches every room above the engine and each library behind it (SentencePiece, PCRE2, utf8proc), so
// that a missing dependency of the installed package fails to link here.
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/inspect/html.h"
#include "fovea/nn/attention.h"
#include "fovea/nn/module.h"
#include "fovea/text/bleu.h"
#include "fovea/text/tokenizer.h"

int main() {
  using namespace fovea;
  nn::use_threads(1);
  nn::ParameterSet parameters(1);
  const nn::MultiHeadAttention attention(parameters, "attention", 8, {.num_query_heads = 2});
  nn::Context context;
  const autograd::Var x(Tensor::zeros(DType::f32, {1, 3, 8}));
  if (attention(context, x, x, {.mask = Causal{}}).shape() != Shape{1, 3, 8}) return 1;

  const std::vector<std::string> lines{"the cat sat on the mat ."};
  if (text::bleu(lines, lines).score < 99.9) return 2;
  try {
    text::load_tokenizer(std::filesystem::temp_directory_path() / "no such folder");
    return 3;
  } catch (const FileError&) {
  }
  const inspect::AlignmentMatrix alignment{{"le", "chat"}, {"the", "cat"}, {1, 0, 0, 1}};
  const inspect::InspectPage page{.title = "t", .maps = {inspect::as_map(alignment)}};
  if (inspect::render_html(page).empty()) return 4;
  try {
    inspect::write_html("/no such folder/x.html", page);
    return 5;
  } catch (const FileError&) {
  }
  std::cout << "layers: every room links\n";
}
