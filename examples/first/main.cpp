#include <fovea/attention.h>

#include <iostream>

using namespace fovea;

int main() {
  const Tensor q = Tensor::normal({1, 8, 512, 64}, 1), k = Tensor::normal({1, 8, 512, 64}, 2),
               v = Tensor::normal({1, 8, 512, 64}, 3);
  const Tensor out = attention(q, k, v, {.mods = {SoftCap{50}}, .mask = Causal{} & SlidingWindow{127}});
  std::cout << to_string(out.shape()) << "\n";  // [1, 8, 512, 64]
}
