// The Hugging Face directory that an mmproj file of the test material would have been converted from. Any thread.
#pragma once

#include <filesystem>
#include <string>

namespace quire::test {

// `family`: a folder of the material; its file's weights are written under the names and in the forms of transformers.
// `extra`: the name of a further tensor of the tower; empty: none.
void write_hf_tower(const std::filesystem::path& family, const std::filesystem::path& directory,
                    const std::string& extra = "");

}  // namespace quire::test
