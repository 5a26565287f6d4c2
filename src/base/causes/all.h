// Every cause as cause::NAME, for whoever has something to say about each of them.
#pragma once

#include "base/causes/ir.h"
#include "base/causes/kernels.h"
#include "base/causes/passes.h"
#include "base/causes/plan_advice.h"
#include "base/causes/plan_candidates.h"
#include "base/causes/plan_layout.h"
#include "base/causes/plan_precision.h"
#include "base/causes/plan_regions.h"
#include "base/causes/plan_search.h"
#include "base/causes/quant.h"
