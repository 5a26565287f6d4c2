// The causes of plan_regions.def as cause::NAME.
#pragma once

#include "base/reason.h"

#define OCTAVO_CAUSE(name, fields) OCTAVO_DECLARE_CAUSE(name, fields)
#include "base/causes/plan_regions.def"
#undef OCTAVO_CAUSE
