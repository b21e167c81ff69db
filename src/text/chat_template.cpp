#include "fovea/text/chat_template.h"

#include <set>

#include "fovea/core/error.h"
#include "text/jinja/lexer.h"
#include "text/jinja/machine.h"
#include "text/utf8.h"

namespace fovea::text {

struct Template::Impl {
  std::string name;
  jinja::Body body;
};

Template::Template(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Template Template::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMostTemplateBytes) throw FileError(name, -1, "a template of more than 4 MiB");
  if (const std::size_t bad = find_invalid_utf8(source); bad != std::string_view::npos)
    throw FileError(name, static_cast<std::int64_t>(bad), "is not UTF-8");
  try {
    return Template(std::make_unique<const Impl>(Impl{name, jinja::parse(source)}));
  } catch (const jinja::SyntaxError& error) {
    throw FileError(name, error.line, error.reason, "line");
  }
}

std::string Template::render(std::string_view variables, const TemplateLimits& limits,
                             std::optional<std::time_t> now) const {
  const auto refuse = [](const std::string& got) {
    return InvalidArgument("Template::render", "variables", "a JSON object", got);
  };
  if (find_invalid_utf8(variables) != std::string_view::npos) throw refuse("bytes that are not UTF-8");
  const auto size = static_cast<std::int64_t>(variables.size());
  jinja::Budget budget(limits.steps + 100 * size, limits.bytes + 64 * size);
  jinja::Machine machine(budget, now);
  jinja::Value given;
  try {
    given = jinja::from_json(variables, machine.maker());
  } catch (const jinja::Failure& failure) {
    throw refuse(failure.reason);
  }
  if (!given.dict()) throw refuse("a " + jinja::type_name(given));
  std::vector<std::pair<std::string, jinja::Value>> named;
  for (const auto& [key, value] : given.dict()->items) named.emplace_back(*key.text(), value);
  try {
    return machine.run(impl_->body, std::move(named));
  } catch (const jinja::Failure& failure) {
    throw FileError(impl_->name, machine.line(), failure.reason, "line");
  }
}

}  // namespace fovea::text
