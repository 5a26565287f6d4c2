// Copies, moves and destructors of what runs.
#include "region/region.h"

namespace octavo::region {

OCTAVO_DEFINE_OUT_OF_LINE(Anchor);
OCTAVO_DEFINE_OUT_OF_LINE(Stage);
OCTAVO_DEFINE_OUT_OF_LINE(Region);
OCTAVO_DEFINE_OUT_OF_LINE(Decision);
OCTAVO_DEFINE_OUT_OF_LINE(Plan);

}  // namespace octavo::region
