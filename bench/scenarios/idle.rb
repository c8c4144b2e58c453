# frozen_string_literal: true

# What idle producers cost their process, and a busy producer beside them.
class Idle < Bench::Scenario
  title "Idle producers"
  about "Connected idle producers, and one busy producer: the process's memory and threads, its CPU time while " \
        "nothing happens, and the polling thread's CPU time for one wake-up, over 5,000 messages sent one by one. The mean " \
        "includes the interruptions by librdkafka's own threads, thousands of them."
  table "memory", "MB", better: :less
  table "threads", "threads", better: :less
  table "idle CPU", "ms/s", better: :less
  table "wake-up", "us of CPU", better: :less
  table "wake-up, median", "us of CPU", better: :less
  settings "linger.ms" => 0
  rounds 5
  apart true
  # Compared with C and not with itself at 0 idle producers: librdkafka's thousands of threads disturb the caches of both sides.
  bar 0.85, table: "wake-up", case: "1,000 idle"
  bar 0.9, table: "wake-up, median", case: "1,000 idle", of_case: "0 idle"

  def cases = { "0 idle" => 0, "1 idle" => 1, "25 idle" => 25, "100 idle" => 100, "1,000 idle" => 1_000 }

  def sides(count)
    { "C" => ["idle.c"], "Penstock" => ["idle.rb", "fd"], "Penstock, a polling thread each" => ["idle.rb", "thread"] }
      .to_h { |side, (file, *mode)| [side, -> { program(side, file, 5_000, *mode, count) }] }
  end

  def figures(round)
    { "memory" => round[:kilobytes] / 1024.0, "threads" => round[:threads], "idle CPU" => round[:cpu_ms],
      "wake-up" => round[:mean_us],
      "wake-up, median" => round[:median_us] }.compact
  end
end
