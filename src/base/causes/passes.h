// The causes of passes.def as cause::NAME.
#pragma once

#include "base/reason.h"

#define OCTAVO_CAUSE(name, fields) OCTAVO_DECLARE_CAUSE(name, fields)
#include "base/causes/passes.def"
#undef OCTAVO_CAUSE
