#include "server/run/call_parser.h"

#include "server/api/batches/batches.h"
#include "server/media/call_media.h"
#include "server/run/admin_task.h"

namespace quire {

Result<ParsedCall> parse_call(const Route& route, const ModelTable& models, const Call& call) {
  Result<std::unique_ptr<Operation>> operation;
  if (const auto* const list = std::get_if<ListEndpoint>(&route.answer)) {
    operation = (*list)(models, call);
  } else {
    auto opened = models.open(call.body, call.key_name, call.limit);
    if (!opened) return tl::make_unexpected(opened.error());
    if (auto* const asleep = std::get_if<SleepingModel>(&*opened)) return std::move(*asleep);
    ModelCall& asked = std::get<ModelCall>(*opened);
    operation = std::get<ModelEndpoint>(route.answer)(asked, call);
    if (operation) {
      std::vector<std::string> warnings = asked.reader.take_warnings();
      for (std::string& text : asked.reader.misspelt())
        warnings.push_back(std::move(text));
      (*operation)->set_warnings(std::move(warnings));
    }
  }
  if (!operation && operation.error().code == CallMedia::kWanted && call.media && call.media->wants())
    return WantedMedia{};
  if (!operation) return tl::make_unexpected(operation.error());
  return *std::move(operation);
}

}  // namespace quire
