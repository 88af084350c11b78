// SPDX-License-Identifier: Apache-2.0
#include "worker/plan_record.h"

#include "base/byte_io.h"
#include "base/mapped_file.h"

namespace cohort {
namespace {

constexpr std::string_view kMagic = "CSREC002";

template <class T>
Status append(std::vector<T>& list, Result<T> item) {
  if (!item.ok()) return item.status();
  list.push_back(std::move(item).value());
  return Status::ok_status();
}

}  // namespace

PlanRecorder::PlanRecorder(const std::string& path)
    : path_(path), file_(path, std::ios::binary | std::ios::trunc) {}

Result<std::unique_ptr<PlanRecorder>> PlanRecorder::create(const std::string& path,
                                                           const StepLimits& limits) {
  std::unique_ptr<PlanRecorder> recorder(new PlanRecorder(path));
  ByteWriter header;
  for (const char c : kMagic) header.put(c);
  for (const int32_t value : {limits.dp, limits.max_slots, limits.max_rows, limits.max_context,
                              limits.blocks, limits.in_flight})
    header.put(value);
  recorder->file_ << header.take() << std::flush;
  if (!recorder->file_)
    return failed_precondition(concat("cannot write the record of plans to ", path,
                                      ": choose another path with --record-plans"));
  return recorder;
}

Status PlanRecorder::add_frame(char type, const std::string& message) {
  ByteWriter frame;
  frame.put(type);
  frame.put_text(message);
  // Flushed, because the last plans before a crash are the interesting ones.
  file_ << frame.take() << std::flush;
  if (!file_) return data_loss(concat("writing the record of plans to ", path_, " failed"));
  return Status::ok_status();
}

Result<PlanRecord> read_plan_record(const std::string& path) {
  COHORT_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()),
                               file->bytes().size());
  if (bytes.substr(0, kMagic.size()) != kMagic)
    return invalid_argument(concat(path, " is not a record of plans"));
  ByteReader in(bytes.substr(kMagic.size()));
  PlanRecord record;
  for (int32_t* value :
       {&record.limits.dp, &record.limits.max_slots, &record.limits.max_rows,
        &record.limits.max_context, &record.limits.blocks, &record.limits.in_flight})
    *value = in.get<int32_t>();
  if (!in.ok()) return data_loss(concat(path, " ends within its header"));
  while (!in.done()) {
    const char type = in.get<char>();
    const std::string message = in.get_text();
    if (!in.ok()) break;  // cut off
    Status status = data_loss(concat("a frame of unknown type ", int(type)));
    if (type == 'P') status = append(record.plans, decode_step_plan(message));
    if (type == 'R') status = append(record.results, decode_step_result(message));
    COHORT_RETURN_IF_ERROR(status.annotate(path));
  }
  return record;
}

Result<std::vector<StepResult>> replay(const std::vector<StepPlan>& plans, StepExecutor& executor) {
  std::vector<StepResult> results;
  const size_t ahead = size_t(executor.limits().in_flight);
  for (size_t submitted = 0; results.size() < plans.size();) {
    while (submitted < plans.size() && submitted - results.size() < ahead)
      COHORT_RETURN_IF_ERROR(executor.submit(plans[submitted++]));
    COHORT_RETURN_IF_ERROR(append(results, executor.next_result()));
  }
  return results;
}

}  // namespace cohort
