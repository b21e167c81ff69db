#include "cli/generate_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/texts.h"
#include "core/excerpt.h"
#include "files/json.h"

namespace fovea::cli {

using nlohmann::json;
using nlohmann::ordered_json;

void RequestReader::read(const text::CheckedLine& from, Line& line) {
  const std::string& text = from.text;
  const std::int64_t number = from.number;
  number_ = number;
  said_ = tools_ = nullptr;
  strings_ = o_.stop;
  draws_.clear();
  line = {{.sample = o_.sample}, number, nullptr, nullptr, o_.length_by_user};
  if (!from.problem.empty()) refuse(from.problem);
  const ordered_json members =
      files::parse_ordered_json(name_of(o_.input), text, text::kMostChatDepth, number);
  if (!members.is_object()) refuse("expected a JSON object, got " + excerpt(text));
  if (members.contains("id") && !members["id"].is_null()) line.id = members["id"];
  for (const auto& [key, value] : members.items()) take(key, value, line);
  line.request.prompt = prompt_of(members.contains("messages"));
  if (writer_ == Writer::search) {
    if (o_.beams > 1 && !draws_.empty() && line.request.sample.temperature == 0.0)
      refuse("\"" + draws_ + "\": expected a \"temperature\" above 0 beside it, because the " +
             std::to_string(o_.beams) + " beams are searched and not drawn");
    return;
  }
  Stops stops = stops_of(o_, coder_, strings_);
  line.request.stop = std::move(stops.ids);
  if (stops.has_strings) watch(std::move(stops.strings), line);
}

FileError RequestReader::refused(const Error& error) const {
  const auto* argument = dynamic_cast<const InvalidArgument*>(&error);
  return {name_of(o_.input), number_,
          argument ? "'" + argument->argument() + "': expected " + argument->expected() + ", got " +
                         argument->got()
                   : error.what(),
          "line"};
}

void RequestReader::refuse(const std::string& problem) const {
  throw FileError(name_of(o_.input), number_, problem, "line");
}

void RequestReader::expected(const std::string& key, const char* what, const ordered_json& got) const {
  refuse("\"" + excerpt(key) + "\": expected " + what + ", got " +
         excerpt(got.dump(-1, ' ', false, ordered_json::error_handler_t::replace)));
}

void RequestReader::take(const std::string& key, const ordered_json& value, Line& line) {
  models::SampleOptions& sample = line.request.sample;
  const bool draws = key == "top_k" || key == "top_p" || key == "min_p" || key == "seed";
  if (draws || (key == "temperature" && value != 0)) draws_ = key;
  const auto whole = [&](std::int64_t& to) {
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}))
      expected(key, "a whole number of 64 bits", value);
    to = value.get<std::int64_t>();
  };
  const auto number = [&](double& to) {
    if (!value.is_number()) expected(key, "a number", value);
    to = value.get<double>();
  };
  const auto in_range = [&](bool holds, const char* what) {
    if (!holds) expected(key, what, value);
  };
  if (key == "prompt" || key == "messages") {
    const bool prompt = key == "prompt";
    if (!said_.is_null()) refuse("expected a \"prompt\" or \"messages\", got both");
    if (prompt ? !value.is_string() : !value.is_array()) expected(key, prompt ? "a text" : "an array", value);
    said_ = value;
  } else if (key == "tools") {
    tools_ = value;
  } else if (key == "length") {
    whole(sample.length);
    in_range(sample.length >= 0, "a whole number of at least 0");
    line.length_given = true;
  } else if (key == "temperature") {
    number(sample.temperature);
    in_range(sample.temperature >= 0.0, "a number of at least 0");
  } else if (key == "top_k") {
    whole(sample.top_k);
    in_range(sample.top_k >= 0, "a whole number of at least 0");
  } else if (key == "top_p") {
    number(sample.top_p);
    in_range(sample.top_p > 0.0 && sample.top_p <= 1.0, "a number above 0, at most 1");
  } else if (key == "min_p") {
    number(sample.min_p);
    in_range(sample.min_p >= 0.0 && sample.min_p <= 1.0, "a number from 0 to 1");
  } else if (key == "repetition_penalty") {
    number(sample.repetition_penalty);
    in_range(sample.repetition_penalty > 0.0, "a number above 0");
  } else if (key == "seed") {
    if (!value.is_number_unsigned()) expected(key, "a whole number of at least 0", value);
    sample.seed = value.get<std::uint64_t>();
  } else if (key == "stop") {
    take_stop(value);
  } else if (key != "id") {
    refuse("\"" + excerpt(key) +
           "\": expected one of prompt, messages, tools, id, length, temperature, top_k, top_p, min_p, "
           "repetition_penalty, seed and stop");
  }
}

void RequestReader::take_stop(const ordered_json& value) {
  strings_.clear();
  for (const ordered_json& one : value.is_array() ? value : ordered_json::array({value})) {
    if (!one.is_string() || one.get<std::string>().empty())
      expected("stop", "a text or an array of texts, none of them empty", value);
    strings_.push_back(one.get<std::string>());
  }
}

Ids RequestReader::prompt_of(bool messages) const {
  if (said_.is_null()) refuse("expected a \"prompt\" or \"messages\", got none");
  const char* key = messages ? "\"messages\"" : "\"prompt\"";
  if (!messages && !o_.chat.chat && o_.chat.messages.empty()) {
    if (!tools_.is_null()) refuse("\"tools\": expected \"messages\" beside it, or --chat");
    const std::string prompt = said_.get<std::string>();
    Ids ids = coder_.begun(prompt);
    if (ids.empty())
      refuse(std::string(key) + ": expected a text of at least one id, got no id of '" + excerpt(prompt) +
             "'");
    return ids;
  }
  if (!chat_) refuse(std::string(key) + ": the model's folder has no chat template");
  std::string rendered;
  try {
    rendered = chat_->of_line(said_, tools_);
  } catch (const InvalidArgument& error) {
    const std::string of_line = error.argument() == "chat.tools" ? "\"tools\"" : key;
    refuse(of_line + ": expected " + error.expected() + ", got " + error.got());
  } catch (const Error& error) {
    refuse(std::string(key) + ": " + error.what());
  }
  Ids ids = coder_.added(rendered);
  if (ids.empty()) refuse(std::string(key) + ": the chat template makes a text without ids of it");
  return ids;
}

void RequestReader::watch(text::StopStrings strings, Line& line) {
  line.stream = std::make_shared<TextStream>(coder_, line.request.prompt, std::move(strings));
  line.text = std::make_shared<std::string>();
  line.request.ends = [stream = line.stream, text = line.text](std::span<const std::int32_t> written) {
    *text += stream->add(written.back());
    return stream->stopped();
  };
}

}  // namespace fovea::cli
