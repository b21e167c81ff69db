#include "bench/rivals.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cstdlib>

namespace fovea::bench {
namespace {

nlohmann::json all_absent(const RivalsOptions& options, const std::string& reason) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& name : options.names) list.push_back({{"name", name}, {"absent", reason}});
  return list;
}

std::string python_of(const RivalsOptions& options) {
  if (!options.python.empty()) return options.python;
  return access(".venv/bin/python", X_OK) == 0 ? ".venv/bin/python" : "python3";
}

[[noreturn]] void run_python(const RivalsOptions& options, int from, int to) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(from, STDIN_FILENO);
  dup2(to, STDOUT_FILENO);
  const std::string python = python_of(options), threads = std::to_string(options.threads);
  setenv("OMP_NUM_THREADS", threads.c_str(), 1);
  execlp(python.c_str(), python.c_str(), options.script.c_str(), threads.c_str(), nullptr);
  std::_Exit(127);
}

}  // namespace

Rivals::Rivals(const RivalsOptions& options) : options_(options) {
  if (options.python == "none") {
    list_ = all_absent(options_, "not asked for");
  } else if (access(options.script.c_str(), R_OK) != 0) {
    list_ = all_absent(options_, "no " + options.script + " here");
  } else {
    signal(SIGPIPE, SIG_IGN);  // a rival's process that ends must not end this one
    start();
  }
}

Rivals::~Rivals() {
  end();
}

void Rivals::start() {
  ++starts_;
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) return;
  std::fflush(nullptr);
  child_ = fork();
  if (child_ == 0) run_python(options_, down[0], up[1]);
  close(down[0]);
  close(up[1]);
  to_ = fdopen(down[1], "w");
  from_ = fdopen(up[0], "r");
  const nlohmann::json answer = ask({{"do", "list"}, {"without", options_.without}});
  list_ = answer.contains("rivals")
              ? answer["rivals"]
              : all_absent(options_, python_of(options_) + " with " + options_.script + " does not answer");
}

void Rivals::end() {
  if (to_) std::fclose(to_);
  if (from_) std::fclose(from_);
  to_ = from_ = nullptr;
  if (child_ > 0) waitpid(child_, nullptr, 0);
  child_ = -1;
}

nlohmann::json Rivals::ask(const nlohmann::json& request) {
  if (!to_) return nlohmann::json::object();
  std::fputs((request.dump() + "\n").c_str(), to_);
  std::fflush(to_);
  char* line = nullptr;
  std::size_t room = 0;
  nlohmann::json answer;
  do {
    const bool got = getline(&line, &room, from_) > 0;
    answer = got ? nlohmann::json::parse(line, nullptr, false)
                 : nlohmann::json(nlohmann::json::value_t::discarded);
    if (answer.is_object() && answer.contains("preparing")) preparing_ = answer["preparing"];
  } while (answer.is_object() && answer.contains("preparing"));
  std::free(line);
  if (answer.is_object()) return answer;
  end();
  return nlohmann::json::object();
}

nlohmann::json Rivals::prepare(nlohmann::json request) {
  const auto refused = [](const nlohmann::json& name, const std::string& reason) {
    return nlohmann::json{{"name", name}, {"refused", reason}};
  };
  nlohmann::json ended = nlohmann::json::array();  // rivals that ended the process
  request["without"] = nlohmann::json::array();
  nlohmann::json answer;
  for (;;) {
    if (!to_ && starts_ > 0 && starts_ < most_starts) start();
    preparing_ = nullptr;
    answer = ask(request);
    if (to_ || preparing_.is_null()) break;
    request["without"].push_back(preparing_);
    ended.push_back(refused(preparing_, "its process ended, for want of memory or by its own fault"));
  }
  nlohmann::json all = answer.value("prepared", nlohmann::json::array());
  if (!answer.contains("prepared")) {
    for (const nlohmann::json& rival : list_) {
      const auto same = [&](const nlohmann::json& other) { return other["name"] == rival["name"]; };
      if (!rival.contains("absent") && std::none_of(ended.begin(), ended.end(), same))
        all.push_back(refused(rival["name"], answer.value("failed", "the process of the rivals ended")));
    }
  }
  all.insert(all.end(), ended.begin(), ended.end());
  return all;
}

std::vector<double> Rivals::run(const std::string& name, std::int64_t count, nlohmann::json how) {
  how["do"] = "run";
  how["name"] = name;
  how["count"] = count;
  return ask(how).value("seconds", std::vector<double>());
}

void Rivals::drop() {
  ask({{"do", "drop"}});
}

}  // namespace fovea::bench
