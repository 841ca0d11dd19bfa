// SPDX-License-Identifier: Apache-2.0
// All of the folder but mat.h, which includes OpenCV's headers. What works on pixels is there where
// the library was built with OpenCV.
#pragma once

#include "tensorpack/imgaug/area_crop.h"
#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/boxes.h"
#include "tensorpack/imgaug/meta.h"
#include "tensorpack/imgaug/paste.h"
#include "tensorpack/imgaug/transform.h"
#ifdef TENSORPACK_HAS_OPENCV
#include "tensorpack/imgaug/auto_augment.h"
#include "tensorpack/imgaug/crop.h"
#include "tensorpack/imgaug/geometry.h"
#include "tensorpack/imgaug/noise.h"
#include "tensorpack/imgaug/photometric.h"
#include "tensorpack/imgaug/resize.h"
#endif
