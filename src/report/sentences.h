// Reasons in English: the only place where the sentence of a cause is written (report/sentences.def).
#pragma once

#include <string>
#include <string_view>

#include "base/reason.h"
#include "region/region.h"

namespace octavo::report {

/// The sentence with its {fields} still open.
[[nodiscard]] std::string_view sentence_of(Cause cause);

/// The sentence of a reason: no full stop, a lower-case beginning, so that several can be joined.
[[nodiscard]] std::string sentence(const Reason& reason);

/// The sentences of several reasons, joined by "; ". Empty for none.
[[nodiscard]] std::string sentences(const Reasons& reasons);

/// What became of a tactic, with its time and where the time comes from: "possible, estimate 3.1 us".
[[nodiscard]] std::string described(const region::Alternative& tactic);

}  // namespace octavo::report
