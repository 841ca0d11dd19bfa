// SPDX-License-Identifier: Apache-2.0
// A program that uses the library as a user's does: record.cmake notes how CMake compiles and links
// it.
int main() {}
