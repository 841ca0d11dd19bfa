// SPDX-License-Identifier: Apache-2.0
// What a file may make libtorch do.
//
// Note [Operators of files]
// Anybody can write a file, so an exported program calls only operators from a list. They compute
// tensors from their arguments, and reach no files, no other devices and no other memory. The list
// was derived from the schemas of libtorch 1.13 and 2.x. A name stands for all overloads and for
// the in-place operator, except those with a generator, an output argument or an unsafe flag
// (is_allowed). libtorch calls some kernels only through functions that check the arguments; a file
// calls the kernels, so reason_not_callable() makes these checks. To find them, each operator of
// the list ran on tensors between guard pages, with thousands of arguments that do not fit. Do the
// same with an operator before you add it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace tensorpack::detail {

/// Whether any file may call the operator.
bool is_allowed(const c10::OperatorHandle& op);

/// Why an allowed operator must not be called with these arguments; nothing if it may be. Leaves
/// out what the operator itself checks.
std::optional<std::string> reason_not_callable(const c10::OperatorHandle& op,
                                               c10::ArrayRef<c10::IValue> arguments);

}  // namespace tensorpack::detail
