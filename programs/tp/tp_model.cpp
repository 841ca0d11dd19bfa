// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/model_main.h"

int main(int argc, char** argv) { return tensorpack::model_main(argc, argv); }
