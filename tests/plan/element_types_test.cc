// Every operator of the IR with every element type that it takes: which pairs the CPU provider gives to the reference evaluator, computed
// one scalar at a time. They are the first table of docs/portable-operators.md, and no others: a pair that has got a kernel leaves the table
// (OCTAVO_UPDATE=1 takes it out), and none is ever added by the test.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "cpu/provider.h"
#include "plan/plan.h"
#include "support/operator_forms.h"
#include "support/tier.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ir::DType;
using ir::Op;
using testing::Form, testing::graph_of, testing::kElementTypes;

using Table = std::map<std::string, std::set<std::string>>;  ///< label: names of types
constexpr std::string_view kBegin = "<!-- reference: begin -->\n", kEnd = "<!-- reference: end -->\n";

fs::path page() {
  return fs::path(OCTAVO_SOURCE_DIR) / "docs/portable-operators.md";
}
std::string page_text() {
  std::ifstream in(page());
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Table listed(const std::string& text) {
  Table out;
  const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos) return out;
  std::istringstream lines(text.substr(begin, end - begin));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t close = line.find('`', 3);
    std::istringstream types(line.substr(line.find('|', close) + 1));
    for (std::string t; types >> t && t != "|";) out[line.substr(3, close - 3)].insert(t);
  }
  return out;
}

std::string written(const Table& table) {
  std::string out(kBegin);
  out += "| operator | element types |\n|---|---|\n";
  for (const auto& [label, types] : table) {
    out += "| `" + label + "` |";
    for (const DType t : kElementTypes) {
      if (types.contains(std::string(ir::name_of(t)))) out += " " + std::string(ir::name_of(t));
    }
    out += " |\n";
  }
  return out;
}

TEST(ElementTypes, ThoseOfTheReferenceAreListedAndOnlyBecomeFewer) {
  if (!testing::available(testing::Tier::avx2)) GTEST_SKIP() << "no AVX2 on this processor";
  Table found;
  std::set<Op> covered{Op::input, Op::constant};
  int pairs = 0;
  for (const Form& f : testing::operator_forms()) {
    covered.insert(f.op);
    int taken = 0;
    for (const DType type : kElementTypes) {
      if (!f.types.empty() && !f.types.contains(type)) continue;
      const auto g = graph_of(f, type);
      if (!g) continue;
      ++taken, ++pairs;
      const auto planned = plan::make_plan(*g, cpu::providers(), {});
      if (!planned) {
        ADD_FAILURE() << f.label << " on " << ir::name_of(type) << ": " << planned.error().message;
        continue;
      }
      for (const region::Region& r : planned->plan.regions) {
        EXPECT_TRUE(r.tactic.vector || r.tactic.reference) << f.label << " runs in " << r.tactic.name();
        if (r.tactic.reference) found[f.label].insert(std::string(ir::name_of(type)));
      }
    }
    EXPECT_GT(taken, 0) << f.label << " takes no element type: its form in this test is wrong";
  }
#define OP(id, text, least, most, traits) EXPECT_TRUE(covered.contains(Op::id)) << "no form of " << text;
#include "ir/ops.def"
  EXPECT_GT(pairs, 700);

  const std::string text = page_text();
  const Table before = listed(text);
  const bool first = text.find(kBegin) != std::string::npos && before.empty();
  Table kept;
  for (const auto& [label, types] : found) {
    for (const std::string& t : types) {
      const auto row = before.find(label);
      const bool known = first || (row != before.end() && row->second.contains(t));
      EXPECT_TRUE(known) << label << " on " << t << " has lost its kernel, or is new and has none";
      if (known) kept[label].insert(t);
    }
  }
  const char* update = std::getenv("OCTAVO_UPDATE");
  if (update != nullptr && *update == '1') {
    const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
    ASSERT_NE(begin, std::string::npos);
    std::ofstream(page()) << text.substr(0, begin) + written(kept) + text.substr(end);
    return;
  }
  EXPECT_EQ(written(before), written(found)) << "OCTAVO_UPDATE=1 takes out of " << page() << " what has a kernel now";
}

}  // namespace
}  // namespace octavo
