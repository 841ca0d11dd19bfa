// SPDX-License-Identifier: Apache-2.0
// What the recorder must know of libtorch's operators beyond their schemas.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tensorpack {

/// Positions of arguments that are written although the schema does not say so, in a call with
/// these arguments.
const std::vector<int>& undeclared_writes(const std::string& op_name,
                                          c10::ArrayRef<c10::IValue> arguments);

/// True if the operator returns something that is not a tensor but looks at metadata only.
bool reads_only_metadata(const std::string& op_name);

/// True if the results depend on the arguments' shapes and types, not on their contents
/// (zeros_like, new_full ...).
bool ignores_contents(const std::string& op_name);

/// True for empty() and its relatives: memory whose contents mean nothing until written.
bool leaves_result_uninitialised(const std::string& op_name);

/// True for fill_(), copy_() and the like, which do not look at what they overwrite.
bool overwrites_first_argument(const std::string& op_name);

/// True if the operator draws from a generator.
bool draws_random_numbers(const c10::OperatorHandle& op);
/// Which argument of the operator is a generator; nullopt if none is.
std::optional<size_t> generator_argument(const c10::OperatorHandle& op);
/// True if the operator exchanges data with other towers or processes: all of them run it, or none.
bool is_collective(const c10::OperatorHandle& op);
/// True if the operator changes the shape, strides or memory of its first argument: t_(), set_().
bool changes_metadata(const c10::OperatorHandle& op);

/// Why a call cannot be part of a recorded program, with what to write instead; empty if it can.
/// `has_mask` tells whether an index argument is a boolean mask.
std::optional<std::string> reason_not_recordable(const c10::OperatorHandle& op, bool has_mask);

}  // namespace tensorpack
