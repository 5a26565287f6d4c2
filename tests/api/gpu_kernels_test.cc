// Every operator of the IR with every element type that it takes: which pairs no kernel of the GPU computes. They are tests/api/without_gpu_kernel.txt, and
// no others: a pair that has got a kernel leaves the list (OCTAVO_UPDATE=1 takes it out), and none is ever added by the test.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "cuda/provider.h"
#include "plan/plan.h"
#include "support/operator_forms.h"

namespace octavo::testing {
namespace {

using ir::DType;
using Lines = std::map<std::string, std::set<std::string>>;  ///< label: names of types

std::string list_path() {
  return OCTAVO_SOURCE_DIR "/tests/api/without_gpu_kernel.txt";
}

/// "label: type type", and lines of "#" in front.
Lines listed(std::string& front) {
  std::ifstream in(list_path());
  Lines out;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("#") || colon == std::string::npos) {
      front += line + "\n";
      continue;
    }
    std::istringstream types(line.substr(colon + 2));
    for (std::string t; types >> t;) out[line.substr(0, colon)].insert(t);
  }
  return out;
}

std::string written(const Lines& lines) {
  std::string out;
  for (const auto& [label, types] : lines) {
    out += label + ":";
    for (const DType t : kElementTypes) {
      if (types.contains(std::string(ir::name_of(t)))) out += " " + std::string(ir::name_of(t));
    }
    out += "\n";
  }
  return out;
}

TEST(GpuKernels, ThoseThatLackAreListedAndOnlyBecomeFewer) {
  const auto provider =
      cuda::make_provider({"sm_80", 108, 163 * 1024}, [](std::string_view t) -> Result<std::string> { return std::string(t); });
  Lines found;
  int pairs = 0;
  for (const Form& f : operator_forms()) {
    for (const DType type : kElementTypes) {
      if (!f.types.empty() && !f.types.contains(type)) continue;
      const auto g = graph_of(f, type);
      if (!g) continue;
      ++pairs;
      if (plan::make_plan(*g, {provider.get()}, {})) continue;
      found[f.label].insert(std::string(ir::name_of(type)));
    }
  }
  EXPECT_GT(pairs, 700);
  std::string front;
  const Lines before = listed(front);
  Lines kept;
  const bool first = before.empty();
  for (const auto& [label, types] : found) {
    for (const std::string& t : types) {
      const auto row = before.find(label);
      const bool known = first || (row != before.end() && row->second.contains(t));
      EXPECT_TRUE(known) << label << " on " << t << " has lost its kernel, or is new and has none";
      if (known) kept[label].insert(t);
    }
  }
  if (const char* update = std::getenv("OCTAVO_UPDATE"); update != nullptr && *update == '1') {
    std::ofstream(list_path()) << front + written(kept);
    return;
  }
  EXPECT_EQ(written(before), written(found)) << "OCTAVO_UPDATE=1 takes out of " << list_path() << " what has a kernel now";
}

}  // namespace
}  // namespace octavo::testing
