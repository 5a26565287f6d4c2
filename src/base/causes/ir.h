// The causes of ir.def as cause::NAME.
#pragma once

#include "base/reason.h"

#define OCTAVO_CAUSE(name, fields) OCTAVO_DECLARE_CAUSE(name, fields)
#include "base/causes/ir.def"
#undef OCTAVO_CAUSE
