// A processor that plans and code are made for without having it, for tools that compare two versions of the project.
#pragma once

#include "cpu/isa.h"

namespace octavo::cpu {

struct Processor {
  Isa isa = Isa::portable;
  bool vbmi = false, bf16 = false;  ///< extensions (isa.h); they count from avx512vnni on
  bool slow_division = false;
};

/// While it lives, this thread plans, packs and generates code as on `processor`. oneDNN, which looks at the real one, is left out. Kernels
/// that are loaded meanwhile may not be run, and those that compute with vectors while they are loaded may not be loaded. Scopes nest.
class AssumeProcessor {
 public:
  explicit AssumeProcessor(const Processor& processor);
  ~AssumeProcessor();
  AssumeProcessor(const AssumeProcessor&) = delete;
  AssumeProcessor& operator=(const AssumeProcessor&) = delete;

 private:
  Processor now_;
  const Processor* outer_;
};

/// Does this thread assume a processor?
[[nodiscard]] bool assumes_processor();

}  // namespace octavo::cpu
