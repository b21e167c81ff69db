// What rows of families that read both ways have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/family/row.h"

namespace fovea::models {

/// NAMEModel, and masked words, labels of sequences and of ids, and answers.
std::vector<ClassRow> encoder_classes(const std::string& name);
/// One matrix over the rows: labels of ids, and answers.
std::vector<HeadRow> heads_of_rows();
/// A dense layer, an activation and a norm before the matrix of words. Without `activation` it is the
/// blocks'.
HeadRow masked_head(std::optional<autograd::Activation> activation, std::vector<TensorRule> tensors);
/// Labels of a sequence, by the row of the first id.
HeadRow first_row_head(std::optional<autograd::Activation> activation, std::vector<TensorRule> tensors);

/// The tensors of a block by their names there: of queries, keys, values and the output of attention, its
/// norm, both matrices of the feed-forward part, and its norm. The names outlive the rules.
std::vector<TensorRule> layer_tensors(const std::vector<std::string_view>& theirs);

// -- of BERT and its descendants

/// BERT's values; its descendants change some of them.
FamilyConfig bert_defaults();
std::vector<Field> bert_fields();
Field token_types();
/// BERT's names below a prefix such as "roberta.".
std::vector<TensorRule> bert_tensors(const std::string& prefix);
/// BERT's own tensors of the masked head.
std::vector<TensorRule> bert_masked_tensors();
/// Those of all its heads; labels of sequences read the pooler.
std::vector<HeadRow> bert_heads(std::string_view pooler);
/// embedding_size: a matrix stands behind embeddings of another size than the blocks'.
void read_embedding_size_or_none(ConfigReader& reader, FamilyConfig& config);
/// The same where there is a matrix in any case: ALBERT.
void read_embedding_size(ConfigReader& reader, FamilyConfig& config);

// -- of RoBERTa

FamilyConfig roberta_defaults(const char* type, std::int64_t vocabulary);
/// RoBERTa's and MPNet's. The activation of the masked head is gelu, whatever the blocks have.
std::vector<HeadRow> roberta_heads();
/// The position of a row is counted from pad_token_id + 1, and so many rows of the table are free.
void read_rows_behind_padding(ConfigReader& reader, FamilyConfig& config);

}  // namespace fovea::models
