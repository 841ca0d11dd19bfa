// SPDX-License-Identifier: Apache-2.0
// What a file may make libtorch do.
//
// Note [Operators of files]
// Anybody can write a file, so an exported program calls only operators from a list. They compute
// tensors from their arguments, and reach no files, no other devices and no other memory. The list
// was derived from the schemas of libtorch 1.13 and 2.x. A name stands for all overloads and for
// the in-place operator, except those with a generator, an output argument or an unsafe flag
// (is_allowed). libtorch calls some kernels only through functions that check the arguments; a file
// calls the kernels, so reason_not_callable() makes these checks. They look at types, shapes and
// numbers of the file. Contents of tensors are known only when a program runs, which may be a
// recording of one; make_harmless() handles those with operators.
//
// operator_campaign runs every operator of the list on tensors between guard pages, with arguments
// of which many do not fit. Run it with an operator before you add it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tensorpack::detail {

/// Whether any file may call the operator.
bool is_allowed(const c10::OperatorHandle& op);

/// Why an allowed operator must not be called with these arguments; nothing if it may be. Leaves
/// out what the operator itself checks.
std::optional<std::string> reason_not_callable(const c10::OperatorHandle& op,
                                               c10::ArrayRef<c10::IValue> arguments);

/// Replaces arguments with which the kernel could end the process, depending on numbers that only
/// the program knows when it runs. It calls operators, because the call may be recorded.
void make_harmless(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments);

}  // namespace tensorpack::detail
