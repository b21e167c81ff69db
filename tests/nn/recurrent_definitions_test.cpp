// The recurrent layers against their papers' equations, written token by token in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fovea/nn/recurrent_mixer.h"
#include "fovea/plan/feature_maps.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

using Row = std::vector<double>;
constexpr std::int64_t dim = 12, len = 21, heads = 3;

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}
double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double softplus(double x) {
  return std::log1p(std::exp(x));
}

// The parameters of a layer, and what the equations need of them.
class Weights {
 public:
  explicit Weights(ParameterSet& set) : set_(set) {}
  double at(const std::string& name, std::int64_t i) const {
    return static_cast<double>(set_.at("m." + name).value.data<float>()[i]);
  }
  /// W x, plus a bias if there is one.
  Row times(const std::string& name, const Row& x) const {
    const Tensor& w = set_.at("m." + name + ".weight").value;
    Row y(static_cast<std::size_t>(w.size(0)));
    for (std::int64_t o = 0; o < w.size(0); ++o) {
      double sum = set_.contains("m." + name + ".bias") ? at(name + ".bias", o) : 0.0;
      for (std::int64_t i = 0; i < w.size(1); ++i)
        sum += at(name + ".weight", o * w.size(1) + i) * x[static_cast<std::size_t>(i)];
      y[static_cast<std::size_t>(o)] = sum;
    }
    return y;
  }
  /// The convolution over the last tokens, and SiLU.
  Row conv(const std::vector<Row>& before) const {
    const Tensor& w = set_.at("m.conv1d.weight").value;
    const std::int64_t width = w.size(1);
    Row y(static_cast<std::size_t>(w.size(0)));
    for (std::int64_t c = 0; c < w.size(0); ++c) {
      double sum = set_.contains("m.conv1d.bias") ? at("conv1d.bias", c) : 0.0;
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t t = std::ssize(before) - width + j;
        if (t >= 0)
          sum += at("conv1d.weight", c * width + j) *
                 before[static_cast<std::size_t>(t)][static_cast<std::size_t>(c)];
      }
      y[static_cast<std::size_t>(c)] = silu(sum);
    }
    return y;
  }

 private:
  ParameterSet& set_;
};

Row part(const Row& x, std::int64_t begin, std::int64_t count) {
  return {x.begin() + begin, x.begin() + begin + count};
}
Row normalized(const Row& x, double epsilon, const std::function<double(std::size_t)>& weight) {
  double squares = 0.0;
  for (const double e : x) squares += e * e;
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * weight(i);
  return y;
}

// A state [rows, columns].
struct State {
  std::size_t columns;
  Row s;
  State(std::size_t rows, std::size_t c) : columns(c), s(rows * c) {}
  void decay(std::size_t row, double alpha) {
    for (std::size_t c = 0; c < columns; ++c) s[row * columns + c] *= alpha;
  }
  Row read(const Row& q) const {
    Row o(columns);
    for (std::size_t r = 0; r < q.size(); ++r)
      for (std::size_t c = 0; c < columns; ++c) o[c] += q[r] * s[r * columns + c];
    return o;
  }
  void write(const Row& k, const Row& v) {
    for (std::size_t r = 0; r < k.size(); ++r)
      for (std::size_t c = 0; c < columns; ++c) s[r * columns + c] += k[r] * v[c];
  }
};

// Compares a layer with an equation: token t of the texts before it -> its row.
void compare(const RecurrentOptions& options,
             const std::function<Row(const Weights&, const std::vector<Row>&)>& next) {
  ParameterSet set(5);
  const RecurrentMixer mixer(set, "m", dim, options);
  disturb(set);
  const Tensor x = Tensor::normal({1, len, dim}, 9);
  Context context;
  const Tensor y = mixer(context, Var(x), {}).value();
  std::vector<Row> text;
  for (std::int64_t t = 0; t < len; ++t) {
    const float* row = x.data<float>() + t * dim;
    text.emplace_back(row, row + dim);
    const Row expected = next(Weights(set), text);
    for (std::int64_t d = 0; d < dim; ++d)
      ASSERT_NEAR(y.data<float>()[t * dim + d], expected[static_cast<std::size_t>(d)], 3e-4)
          << t << ", " << d;
  }
}

Row gated(const Row& gate, const Row& y) {
  Row out(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) out[i] = silu(gate[i]) * y[i];
  return out;
}

TEST(Definition, LinearAttention) {
  const auto phi = [](Row x) {
    for (double& e : x) e = e > 0 ? e + 1 : std::exp(e);
    return x;
  };
  compare(LinearAttentionOptions{.num_heads = heads}, [&](const Weights& w, const std::vector<Row>& text) {
    Row out;
    for (std::int64_t h = 0; h < heads; ++h) {
      const Row q = phi(part(w.times("q_proj", text.back()), 4 * h, 4));
      Row sum(4);
      double total = 1e-6;
      for (const Row& x : text) {
        const Row k = phi(part(w.times("k_proj", x), 4 * h, 4)), v = part(w.times("v_proj", x), 4 * h, 4);
        double weight = 0.0;
        for (std::size_t i = 0; i < 4; ++i) weight += q[i] * k[i];
        total += weight;
        for (std::size_t i = 0; i < 4; ++i) sum[i] += weight * v[i];
      }
      for (const double e : sum) out.push_back(e / total);
    }
    return w.times("out_proj", out);
  });
}

// Sums over the tokens before, without a state.
TEST(Definition, Performer) {
  constexpr std::int64_t features = 10, head_dim = dim / heads;
  const Tensor random = favor_projection(features, head_dim, 3);
  const auto phi = [&](const Row& x) {
    Row y(features);
    for (std::int64_t j = 0; j < features; ++j) {
      double product = 0.0, squares = 0.0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const double scaled = x[static_cast<std::size_t>(d)] / std::pow(head_dim, 0.25);
        product += random.data<double>()[j * head_dim + d] * scaled;
        squares += scaled * scaled;
      }
      y[static_cast<std::size_t>(j)] = std::exp(product - squares / 2) / std::sqrt(features);
    }
    return y;
  };
  compare(PerformerOptions{.num_heads = heads, .features = features, .projection_seed = 3},
          [&](const Weights& w, const std::vector<Row>& text) {
            Row out;
            for (std::int64_t h = 0; h < heads; ++h) {
              const Row q = phi(part(w.times("q_proj", text.back()), head_dim * h, head_dim));
              Row sum(head_dim);
              double total = 1e-6;
              for (const Row& x : text) {
                const Row k = phi(part(w.times("k_proj", x), head_dim * h, head_dim)),
                          v = part(w.times("v_proj", x), head_dim * h, head_dim);
                double weight = 0.0;
                for (std::size_t j = 0; j < q.size(); ++j) weight += q[j] * k[j];
                total += weight;
                for (std::size_t d = 0; d < v.size(); ++d) sum[d] += weight * v[d];
              }
              for (const double e : sum) out.push_back(e / total);
            }
            return w.times("out_proj", out);
          });
}

TEST(Definition, Retention) {
  compare(RetentionOptions{.num_heads = heads}, [](const Weights& w, const std::vector<Row>& text) {
    Row out;
    for (std::int64_t h = 0; h < heads; ++h) {
      State s(4, 8);
      for (const Row& x : text) {
        for (std::size_t r = 0; r < 4; ++r) s.decay(r, 1.0 - std::exp2(-5.0 - static_cast<double>(h)));
        s.write(part(w.times("k_proj", x), 4 * h, 4), part(w.times("v_proj", x), 8 * h, 8));
      }
      Row o = s.read(part(w.times("q_proj", text.back()), 4 * h, 4));
      for (double& e : o) e /= 2.0;  // sqrt(4)
      const Row n = normalized(
          o, 1e-5, [&](std::size_t i) { return w.at("norm.weight", static_cast<std::int64_t>(i)); });
      out.insert(out.end(), n.begin(), n.end());
    }
    return w.times("out_proj", gated(w.times("gate_proj", text.back()), out));
  });
}

TEST(Definition, GatedLinearAttention) {
  compare(GatedLinearAttentionOptions{.num_heads = heads, .gate_rank = 3},
          [](const Weights& w, const std::vector<Row>& text) {
            Row out;
            for (std::int64_t h = 0; h < heads; ++h) {
              State s(2, 4);
              for (const Row& x : text) {
                const Row gate = part(w.times("decay_up", w.times("decay_down", x)), 2 * h, 2);
                for (std::size_t r = 0; r < 2; ++r) s.decay(r, std::pow(sigmoid(gate[r]), 1.0 / 16.0));
                s.write(part(w.times("k_proj", x), 2 * h, 2), part(w.times("v_proj", x), 4 * h, 4));
              }
              Row o = s.read(part(w.times("q_proj", text.back()), 2 * h, 2));
              for (double& e : o) e /= std::sqrt(2.0);
              const Row n = normalized(
                  o, 1e-5, [&](std::size_t i) { return w.at("norm.weight", static_cast<std::int64_t>(i)); });
              out.insert(out.end(), n.begin(), n.end());
            }
            return w.times("out_proj", gated(w.times("gate_proj", text.back()), out));
          });
}

TEST(Definition, GatedDelta) {
  const auto unit = [](const Row& x) {
    double squares = 1e-6;
    for (const double e : x) squares += e * e;
    Row y = x;
    for (double& e : y) e /= std::sqrt(squares);
    return y;
  };
  compare(GatedDeltaOptions{.num_heads = heads}, [&](const Weights& w, const std::vector<Row>& text) {
    Row out;
    for (std::int64_t h = 0; h < heads; ++h) {
      State s(4, 4);
      std::vector<Row> inputs;
      Row q;
      for (const Row& x : text) {
        inputs.push_back(w.times("qkv_proj", x));
        const Row qkv = w.conv(inputs);
        q = unit(part(qkv, 4 * h, 4));
        const Row k = unit(part(qkv, 12 + 4 * h, 4)), v = part(qkv, 24 + 4 * h, 4);
        const auto head = static_cast<std::size_t>(h);
        const double alpha = std::exp(-std::exp(w.at("A_log", h)) * softplus(w.times("decay_proj", x)[head])),
                     beta = sigmoid(w.times("beta_proj", x)[head]);
        for (std::size_t r = 0; r < 4; ++r) s.decay(r, alpha);
        const Row held = s.read(k);
        Row change(4);
        for (std::size_t c = 0; c < 4; ++c) change[c] = beta * (v[c] - held[c]);
        s.write(k, change);
      }
      Row o = s.read(q);
      for (double& e : o) e /= 2.0;
      const Row n = normalized(
          o, 1e-5, [&](std::size_t i) { return w.at("norm.weight", static_cast<std::int64_t>(i)); });
      out.insert(out.end(), n.begin(), n.end());
    }
    return w.times("out_proj", gated(w.times("gate_proj", text.back()), out));
  });
}

// 24 channels in heads of 4, of which two groups share B and C of 5 elements.
TEST(Definition, Mamba2) {
  compare(Mamba2Options{.head_dim = 4, .state_dim = 5, .groups = 2},
          [](const Weights& w, const std::vector<Row>& text) {
            Row y(24);
            for (std::int64_t h = 0; h < 6; ++h) {
              const std::int64_t group = h / 3;
              State s(5, 4);
              std::vector<Row> inputs;
              Row c, u;
              for (const Row& x : text) {
                inputs.push_back(w.times("xbc_proj", x));
                const Row xbc = w.conv(inputs);
                u = part(xbc, 4 * h, 4);
                c = part(xbc, 34 + 5 * group, 5);
                const double step = softplus(w.times("dt_proj", x)[static_cast<std::size_t>(h)]);
                for (std::size_t r = 0; r < 5; ++r) s.decay(r, std::exp(-std::exp(w.at("A_log", h)) * step));
                Row scaled = u;
                for (double& e : scaled) e *= step;
                s.write(part(xbc, 24 + 5 * group, 5), scaled);
              }
              const Row o = s.read(c);
              for (std::size_t i = 0; i < 4; ++i)
                y[static_cast<std::size_t>(4 * h) + i] = o[i] + w.at("D", h) * u[i];
            }
            const Row products = gated(w.times("z_proj", text.back()), y);
            Row out;
            for (std::int64_t g = 0; g < 2; ++g) {
              const Row n = normalized(part(products, 12 * g, 12), 1e-5, [&](std::size_t i) {
                return w.at("norm.weight", 12 * g + static_cast<std::int64_t>(i));
              });
              out.insert(out.end(), n.begin(), n.end());
            }
            return w.times("out_proj", out);
          });
}

TEST(Definition, Mamba) {
  compare(MambaOptions{.state_dim = 3, .step_rank = 2}, [](const Weights& w, const std::vector<Row>& text) {
    Row out(24);
    for (std::int64_t c = 0; c < 24; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      Row h(3);
      std::vector<Row> inputs;
      for (const Row& x : text) {
        const Row xz = w.times("in_proj", x);
        inputs.push_back(part(xz, 0, 24));
        const Row u = w.conv(inputs), selected = w.times("x_proj", u);
        const double step = softplus(w.times("dt_proj", part(selected, 0, 2))[channel]);
        double y = w.at("D", c) * u[channel];
        for (std::int64_t n = 0; n < 3; ++n) {
          const auto i = static_cast<std::size_t>(n);
          h[i] = std::exp(-std::exp(w.at("A_log", 3 * c + n)) * step) * h[i] +
                 step * selected[2 + i] * u[channel];
          y += selected[5 + i] * h[i];
        }
        out[channel] = y * silu(xz[24 + channel]);
      }
    }
    return w.times("out_proj", out);
  });
}

// Heads of 4; a layer alone, without the values of another.
TEST(Definition, Rwkv7) {
  compare(Rwkv7Options{.head_dim = 4, .rank = 3, .gate_rank = 2}, [](const Weights& w,
                                                                     const std::vector<Row>& text) {
    const auto shifted = [&](std::size_t t, const std::string& name) {
      Row x = text[t];
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] += ((t == 0 ? 0.0 : text[t - 1][i]) - x[i]) * w.at(name, static_cast<std::int64_t>(i));
      return x;
    };
    const auto each = [](Row x, double (*f)(double)) {
      for (double& e : x) e = f(e);
      return x;
    };
    Row out;
    for (std::int64_t h = 0; h < heads; ++h) {
      State s(4, 4);
      Row r, k, v;
      for (std::size_t t = 0; t < text.size(); ++t) {
        r = part(w.times("r_proj", shifted(t, "x_r")), 4 * h, 4);
        k = part(w.times("k_proj", shifted(t, "x_k")), 4 * h, 4);
        v = part(w.times("v_proj", shifted(t, "x_v")), 4 * h, 4);
        const Row inner = each(w.times("w_down", shifted(t, "x_w")), [](double e) { return std::tanh(e); });
        const Row decay = part(w.times("w_up", inner), 4 * h, 4);
        const Row a = part(each(w.times("a_up", w.times("a_down", shifted(t, "x_a"))), sigmoid), 4 * h, 4);
        Row erased(4), write(4);
        double squares = 0.0;
        for (std::size_t i = 0; i < 4; ++i) {
          erased[i] = k[i] * w.at("k_k", 4 * h + static_cast<std::int64_t>(i));
          squares += erased[i] * erased[i];
        }
        for (std::size_t i = 0; i < 4; ++i) {
          erased[i] /= std::sqrt(squares);
          write[i] = erased[i] * a[i];
          k[i] *= 1.0 + (a[i] - 1.0) * w.at("k_a", 4 * h + static_cast<std::int64_t>(i));
        }
        Row removed = s.read(erased);
        for (double& e : removed) e = -e;
        for (std::size_t i = 0; i < 4; ++i) s.decay(i, std::exp(-std::exp(-0.5) * sigmoid(decay[i])));
        s.write(write, removed);
        s.write(k, v);
      }
      Row o = s.read(r);
      double mean = 0.0, variance = 0.0, own = 0.0;
      for (const double e : o) mean += e / 4.0;
      for (const double e : o) variance += (e - mean) * (e - mean) / 4.0;
      for (std::size_t i = 0; i < 4; ++i)
        own += r[i] * k[i] * w.at("r_k", 4 * h + static_cast<std::int64_t>(i));
      for (std::size_t i = 0; i < 4; ++i) {
        const std::int64_t c = 4 * h + static_cast<std::int64_t>(i);
        out.push_back((o[i] - mean) / std::sqrt(variance + 4e-5) * w.at("norm.weight", c) +
                      w.at("norm.bias", c) + own * v[i]);
      }
    }
    const std::size_t last = text.size() - 1;
    const Row gate = w.times("g_up", each(w.times("g_down", shifted(last, "x_g")), sigmoid));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] *= gate[i];
    return w.times("out_proj", out);
  });
}

}  // namespace
}  // namespace fovea::nn
