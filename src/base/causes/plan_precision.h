// The causes of plan_precision.def as cause::NAME.
#pragma once

#include "base/reason.h"

#define OCTAVO_CAUSE(name, fields) OCTAVO_DECLARE_CAUSE(name, fields)
#include "base/causes/plan_precision.def"
#undef OCTAVO_CAUSE
