// The order of the parts of a block. A whole call and a call that reads row by row differ in what the two
// attentions do, and in that only whole calls merge rows.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "fovea/autograd/residual.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {

// The rows between the parts of blocks. What the last part added is only summed, and the sum normalised, when
// the next one says how it reads the rows. Residual, dropout and norm are one sweep
// (autograd::residual_norm).
class TransformerStack::Stream {
 public:
  enum class Read : std::uint8_t { in_f32, by_bf16_products };

  Stream(Var x, const Call& call) : x_(std::move(x)), arguments_read_(call.arguments) {}

  /// Adds what a part has computed, with dropout.
  void add(Context& context, const Var& y, float dropout) {
    x_ = rows(context);
    y_ = y;
    rounded_ = Var();
    dropout_ = context.next_dropout(dropout);
  }
  void replace(Var x) { *this = Stream(std::move(x), arguments_read_); }
  /// Normalises the rows themselves: the sum is not kept. The norm stays where it is until they are read.
  void normalize(Context& context, const Norm& norm) {
    if (norm_) settle(context, Read::in_f32);  // a final norm behind a block that ends with one
    norm_ = &norm;
  }

  const Var& rows(Context& context) {
    settle(context, Read::in_f32);
    return x_;
  }
  /// The rows for a part.
  Var rows(Context& context, Read read) {
    settle(context, read);
    return read == Read::in_f32 || rounded_.empty() ? x_ : rounded_;
  }
  /// The normalised rows, for a part behind a norm.
  Var normed(Context& context, const Norm& norm, Read read) {
    if (norm_) settle(context, Read::in_f32);
    if (y_.empty()) return norm(context, x_);
    const bool round = allowed(read) == Read::by_bf16_products;
    const auto made =
        norm.of_residual(context, x_, y_, dropout_,
                         {.normed = round ? autograd::NormedRows::bf16 : autograd::NormedRows::f32});
    x_ = made.sum;
    y_ = Var();
    return round ? made.rounded : made.normed;
  }

 private:
  Stream(Var x, bool arguments_read) : x_(std::move(x)), arguments_read_(arguments_read) {}
  // Arguments of a call may be computed from the rows of a part.
  Read allowed(Read read) const {
    return arguments_read_ || x_.recorded() || y_.recorded() ? Read::in_f32 : read;
  }
  void settle(Context& context, Read read) {
    const Norm* norm = std::exchange(norm_, nullptr);
    if (!y_.empty()) {
      if (norm) {
        const bool round = allowed(read) == Read::by_bf16_products;
        const auto made =
            norm->of_residual(context, x_, y_, dropout_,
                              {.sum = autograd::ResidualSum::not_read,
                               .normed = round ? autograd::NormedRows::both : autograd::NormedRows::f32});
        x_ = made.normed;
        rounded_ = made.rounded;
      } else {
        x_ = autograd::residual(x_, y_, dropout_);
      }
      y_ = Var();
    } else if (norm) {
      x_ = (*norm)(context, x_);
      rounded_ = Var();
    }
  }

  Var x_, y_;                   // y_ is empty where nothing is to be added
  Var rounded_;                 // x_ in bf16, where a norm has written both
  const Norm* norm_ = nullptr;  // of x_ + y_; null: none
  autograd::DropoutOf dropout_;
  bool arguments_read_ = false;
};

inline void TransformerStack::add_branch(Context& context, const Branch& branch, float dropout,
                                         Stream& stream, const Var& y) {
  stream.add(context, branch.factor == 1.0f ? y : scale(y, branch.factor), dropout);
}

// A part of a block, without what it computes.
struct TransformerStack::Part {
  const Branch& branch;
  float dropout;
  Stream::Read read;
};

template <class Sublayer>
void TransformerStack::residual(Context& context, const Part& part, Stream& stream, Sublayer&& sublayer) {
  const Branch& branch = part.branch;
  const bool norm_in_front = branch.place == NormPlace::pre || branch.place == NormPlace::sandwich;
  Var y = sublayer(norm_in_front ? stream.normed(context, branch.norm, part.read)
                                 : stream.rows(context, part.read));
  if (branch.place == NormPlace::sandwich) y = branch.end(context, y);
  if (branch.place == NormPlace::end) y = branch.norm(context, y);
  add_branch(context, branch, part.dropout, stream, y);
  if (branch.place == NormPlace::post) stream.normalize(context, branch.norm);
}

// How the parts of a layer read their rows.
struct TransformerStack::Reads {
  Reads(const Context& context, const Layer& layer)
      : self(by(layer.self && layer.self->takes_bf16(context, MultiHeadAttention::RowsOf::both))),
        memory(by(layer.memory && layer.memory->takes_bf16(context, MultiHeadAttention::RowsOf::queries))),
        feed_forward(by(layer.feed_forward.takes_bf16(context))) {}
  Stream::Read self, memory, feed_forward;

 private:
  static Stream::Read by(bool takes_bf16) {
    return takes_bf16 ? Stream::Read::by_bf16_products : Stream::Read::in_f32;
  }
};

// The two parts of a block that both read its input.
template <class Self>
void TransformerStack::run_side_by_side(Context& context, std::size_t i, Stream& x, Self&& self) const {
  const Layer& layer = layers_[i];
  const Reads reads(context, layer);
  const bool own_norm = layer.final_branch.place == NormPlace::pre;
  const Var of_mixer =
      x.normed(context, layer.self_branch.norm,
               own_norm || reads.self == reads.feed_forward ? reads.self : Stream::Read::in_f32);
  const Var of_mlp = own_norm ? layer.final_branch.norm(context, x.rows(context)) : of_mixer;
  add_branch(context, layer.self_branch, layer.dropout, x, self(layer, i, of_mixer));
  add_branch(context, layer.final_branch, layer.dropout, x, layer.feed_forward(context, of_mlp));
}

// Block number i.
template <class Self, class Memory, class Merge>
void TransformerStack::run(Context& context, std::size_t i, Stream& x, Self&& self, Memory&& memory,
                           Merge&& merge) const {
  const Layer& layer = layers_[i];
  if (layer.parts == BlockSpec::Parts::side_by_side) return run_side_by_side(context, i, x, self);
  const Reads reads(context, layer);
  residual(context, {layer.self_branch, layer.dropout, reads.self}, x,
           [&](const Var& y) { return self(layer, i, y); });
  if (layer.merging) x.replace(merge(layer, x.rows(context)));
  if (layer.memory)
    residual(context, {layer.memory_branch, layer.dropout, reads.memory}, x,
             [&](const Var& y) { return memory(layer, i, y); });
  if (!layer.feed_forward.empty())
    residual(context, {layer.final_branch, layer.dropout, reads.feed_forward}, x,
             [&](const Var& y) { return layer.feed_forward(context, y); });
}

inline Var TransformerStack::leave(Context& context, Stream x) const {
  if (norm_) x.normalize(context, *norm_);
  return x.rows(context);
}

inline Tensor* weights_of(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.weights ? call.weights(place, layer) : nullptr;
}

inline std::vector<autograd::AttentionArgument> arguments_of(const TransformerStack::Call& call,
                                                             std::string_view place, std::size_t layer,
                                                             const Var& rows) {
  if (!call.arguments) return {};
  return call.arguments(place, layer, rows);
}

inline Tensor advantage_of(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.advantage ? call.advantage(place, layer) : Tensor();
}

}  // namespace fovea::nn
