// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// What `tp-model` does: the commands of `tp` that look into files of tensors. Apart from main(),
/// so that tests need not start libtorch for every command.
int model_main(int argc, char** argv);

}  // namespace tensorpack
