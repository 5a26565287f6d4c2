#include "support/irt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/text.h"
#include "ir/verify.h"
#include "reference/evaluate.h"
#include "report/sentences.h"
#include "support/feeds.h"

namespace octavo::testing {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = OCTAVO_SOURCE_DIR;

struct Case {
  std::string name;
  int line = 0;
  std::vector<std::string> head;  ///< lines before `in`, as written
  std::vector<std::string> in, out, why;
  bool same = false, unverified = false, negated = false, values_differ = false;
};

struct File {
  std::vector<std::string> head;  ///< lines before the first case
  std::vector<std::string> rules;
  std::vector<Case> cases;
};

std::string trimmed(const std::string& s) {
  const auto from = s.find_first_not_of(" \t\r");
  return from == std::string::npos ? "" : s.substr(from, s.find_last_not_of(" \t\r") - from + 1);
}

File read(const fs::path& path) {
  File file;
  std::ifstream stream(path);
  std::string line;
  std::vector<std::string>* section = nullptr;
  for (int number = 1; std::getline(stream, line); ++number) {
    const std::string text = trimmed(line);
    if (text.starts_with("case ")) {
      file.cases.push_back({});
      file.cases.back().name = text.substr(5);
      file.cases.back().line = number;
      section = nullptr;
      continue;
    }
    if (file.cases.empty()) {
      file.head.push_back(line);
      if (const auto at = text.find("run:"); at != std::string::npos) {
        std::istringstream names(text.substr(at + 4));
        for (std::string name; std::getline(names, name, ',');) file.rules.push_back(trimmed(name));
      }
      continue;
    }
    Case& c = file.cases.back();
    if (text == "in") {
      section = &c.in;
    } else if (text == "out") {
      section = &c.out;
    } else if (text == "out same") {
      c.same = true;
      section = nullptr;
    } else if (text.starts_with("why ")) {
      c.why.push_back(trimmed(text.substr(4)));
    } else if (section != nullptr) {
      if (!text.empty()) section->push_back(text);
    } else if (c.in.empty()) {
      if (!text.empty()) c.head.push_back(line);
      c.negated = c.negated || text == "scales negated";
      c.unverified = c.unverified || c.negated || text == "unverified";
      c.values_differ = c.values_differ || text.starts_with("values differ:");
    }
  }
  return file;
}

void write(const fs::path& path, const File& file) {
  std::string text;
  for (const std::string& line : file.head) text += line + "\n";
  while (text.ends_with("\n\n")) text.pop_back();
  for (const Case& c : file.cases) {
    text += fmt::format("\ncase {}\n", c.name);
    for (const std::string& line : c.head) text += line + "\n";
    text += "  in\n";
    for (const std::string& line : c.in) text += "    " + line + "\n";
    text += c.same ? "  out same\n" : "  out\n";
    for (const std::string& line : c.out) text += c.same ? "" : "    " + line + "\n";
    for (const std::string& line : c.why) text += "  why " + line + "\n";
  }
  std::ofstream(path) << text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> lines_of(const ir::Graph& g) {
  std::vector<std::string> lines;
  std::istringstream stream(ir::print(g, {.full_constants = false, .origins = false}));
  for (std::string line; std::getline(stream, line);) lines.push_back(trimmed(line));
  return lines;
}

/// Nodes written without `from` come from an ONNX node of their own name.
void give_origins(ir::Graph& g) {
  for (ir::NodeId id = 0; id < g.node_capacity(); ++id) {
    ir::Node& n = g.node(id);
    if (n.op != ir::Op::input && n.op != ir::Op::constant && n.origin.empty()) n.origin = {g.value(n.outputs[0]).name};
  }
}

void negate_scales(ir::Graph& g) {
  for (ir::NodeId id = 0; id < g.node_capacity(); ++id) {
    if (!g.node(id).quantizer) continue;
    for (float& scale : g.node(id).quantizer->scale) scale = -scale;
  }
}

void run_case(Case& c, const std::vector<const rewrite::Rule*>& rules, bool update) {
  auto parsed = ir::parse(joined(c.in));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ir::Graph before = std::move(*parsed);
  give_origins(before);
  if (c.negated) negate_scales(before);
  if (!c.unverified) {
    const Status status = ir::verify(before);
    ASSERT_TRUE(status) << "the graph of `in`: " << status.error().message;
  }

  ir::Graph after = before;
  const auto report = rewrite::run(after, rules, {.disabled = {}, .verify = !c.unverified, .dump = {}});
  ASSERT_TRUE(report) << report.error().message;
  const std::vector<std::string> lines = lines_of(after);
  const bool same = lines == lines_of(before);
  std::vector<std::string> why;
  for (const rewrite::LogEntry& entry : report->refusals) why.push_back(report::sentence(*entry.refusal));
  if (update) {
    c.out = lines;
    c.same = same;
    c.why = why;
  } else {
    EXPECT_EQ(same, c.same) << "the graph " << (same ? "stays the same" : "changes");
    if (!c.same) {
      EXPECT_EQ(joined(lines), joined(c.out)) << "OCTAVO_UPDATE=1 rewrites `out` and `why`";
    }
    EXPECT_EQ(joined(why), joined(c.why)) << "OCTAVO_UPDATE=1 rewrites `out` and `why`";
  }

  ir::Graph again = after;
  const auto second = rewrite::run(again, rules, {});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(joined(lines_of(again)), joined(lines)) << "a second run changes the graph again";
  if (c.unverified) return;

  const bool exact = std::all_of(rules.begin(), rules.end(), [](const rewrite::Rule* r) { return r->exact(); });
  if (!exact) return;
  bool differ = false;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const std::vector<ir::Tensor> feeds = seeded_feeds(before, seed);
    const auto a = reference::evaluate(before, feeds), b = reference::evaluate(after, feeds);
    ASSERT_TRUE(a) << "evaluating `in`: " << a.error().message;
    ASSERT_TRUE(b) << "evaluating `out`: " << b.error().message;
    const std::string difference = first_difference(*a, *b);
    differ = differ || !difference.empty();
    if (!c.values_differ) {
      EXPECT_EQ(difference, "") << "seed " << seed;
    }
  }
  if (c.values_differ) {
    EXPECT_TRUE(differ) << "the case says `values differ`, but they are equal";
  }
}

}  // namespace

void run_irt(const std::string& path, const std::vector<const rewrite::Rule*>& rules) {
  File file = read(kRoot / path);
  ASSERT_FALSE(file.cases.empty()) << path << " has no case";
  std::vector<const rewrite::Rule*> chosen;
  for (const std::string& name : file.rules) {
    const auto it = std::find_if(rules.begin(), rules.end(), [&](const rewrite::Rule* r) { return r->name() == name; });
    ASSERT_NE(it, rules.end()) << path << " runs \"" << name << "\", which is no rule here";
    chosen.push_back(*it);
  }
  ASSERT_FALSE(chosen.empty()) << path << ": the opening comment must say `run: RULE`";
  const char* flag = std::getenv("OCTAVO_UPDATE");
  const bool update = flag != nullptr && std::string_view(flag) == "1";
  for (Case& c : file.cases) {
    SCOPED_TRACE(fmt::format("{}:{}: case {}", path, c.line, c.name));
    run_case(c, chosen, update);
  }
  if (update) write(kRoot / path, file);
}

std::vector<std::string> irt_files(const std::string& folder) {
  std::vector<std::string> files;
  if (!fs::exists(kRoot / folder)) return files;
  for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
    if (entry.path().extension() == ".irt") files.push_back(fs::relative(entry.path(), kRoot).generic_string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace octavo::testing
