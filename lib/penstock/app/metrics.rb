# frozen_string_literal: true

module Penstock
  # What an application has done with a topic of a group, and what it has now: {App::Server#metrics}. Frozen.
  #
  # - `group`, `topic`
  # - `partitions`: assigned now
  # - `in_work`: pieces of work that workers have now, each with one message, some of a lane, or batches
  # - `waiting`, `waiting_bytes`: messages that are polled and not finished, and what they take in memory. Messages that were
  #   polled together take it until the last one is finished
  # - `processed`: messages that are finished, whatever has become of them
  # - `failed`: calls of processors that have raised; `retried`: those that are, or were, tried again
  # - `skipped`, `dead_letters`: messages
  # - `seconds`: how long workers have been busy
  # - `lag`: messages of the assigned partitions behind the first one that is not finished, that one too; nil: not known yet
  # - `lanes`: lanes that have messages: with `order: :key`, keys; quick messages of different keys share one
  # - `uncommitted`: messages that are finished and not committed, which a crash repeats
  # - `wait_p50`, `wait_p99`: seconds from the poll of a message until a worker begins its piece of work; `work_p50`, `work_p99`:
  #   seconds that the processing of a message takes. Of the last one to two minutes, accurate to a fifth; nil: there was none
  AppMetrics = Struct.new(:group, :topic, :partitions, :in_work, :waiting, :waiting_bytes,
                          :processed, :failed, :retried, :skipped, :dead_letters, :seconds,
                          :lag, :lanes, :uncommitted, :wait_p50, :wait_p99, :work_p50, :work_p99)

  class App
    # Counts for {AppMetrics}. Of the loop's thread; {#latest} is for any.
    # @api private
    class Metrics
      COUNTERS = { processed: "messages that are finished", failed: "calls of processors that have raised",
                   retried: "calls that are tried again", skipped: "messages that were skipped",
                   dead_letters: "copies in dead-letter topics", seconds: "seconds that workers have been busy" }.freeze
      GAUGES = { partitions: "assigned partitions", in_work: "pieces of work that workers have",
                 waiting: "messages that are polled and not finished", waiting_bytes: "their bytes",
                 lag: "messages that are not finished, to the end of the partitions", lanes: "lanes that have messages",
                 uncommitted: "messages that are finished and not committed" }.freeze
      TIMES = { wait: "seconds from the poll of a message until its piece of work begins",
                work: "seconds that the processing of a message takes" }.freeze
      QUANTILES = { p50: 0.5, p99: 0.99 }.freeze
      private_constant :COUNTERS, :GAUGES, :TIMES, :QUANTILES

      # @return [Array<AppMetrics>] frozen, of at most a second ago
      attr_reader :latest

      # @param clock [#call] seconds
      def initialize(clock)
        @clock = clock
        @counts = Hash.new { |counts, place| counts[place] = Hash.new(0) }
        @times = Hash.new { |times, place| times[place] = TIMES.transform_values { Durations.new(clock.call) } }
        @latest = [].freeze
      end

      # @param partition [Partition]
      # @param name [Symbol] of a counter
      def add(partition, name, count = 1) = @counts[place_of(partition)][name] += count

      # @param work [Work] has run
      def settled(work)
        done = work.slices.sum(&:done)
        add(work.partition, :processed, done)
        add(work.partition, :seconds, work.seconds)
        return if done.zero?

        times = @times[place_of(work.partition)]
        times[:work].add(work.seconds / done, done)
        since = work.slices.first.run.since
        times[:wait].add(work.started - since, done) if since && work.started
      end

      # @param subscriptions [Array<Subscription>]
      def publish(subscriptions)
        partitions = subscriptions.flat_map(&:partitions).group_by { |one| place_of(one) }
        lags = subscriptions.map { |one| one.lags.now }.reduce({}) { |all, more| all.merge(more) { |_, one, two| one + two } }
        @latest = (@counts.keys | partitions.keys).sort.map do |place|
          row(place, partitions.fetch(place, []), lags[place])
        end.freeze
      end

      # @param rows [Array<AppMetrics>]
      # @return [String] in Prometheus' text format
      def self.to_prometheus(rows)
        [*GAUGES.map { |name, help| family(rows, name, "gauge", "penstock_app_#{name}", help) },
         *TIMES.map { |name, help| times_of(rows, name, "penstock_app_#{name}_seconds", help) },
         *COUNTERS.map { |name, help| family(rows, name, "counter", "penstock_app_#{name}_total", help) }].join
      end

      private_class_method def self.family(rows, name, type, full_name, help)
        lines = rows.map { |row| "#{full_name}{#{labels(row)}} #{row[name]}\n" unless row[name].nil? }
        "#{head(full_name, type, help)}#{lines.join}"
      end

      private_class_method def self.times_of(rows, name, full_name, help)
        lines = rows.product(QUANTILES.to_a).map do |row, (quantile, share)|
          seconds = row[:"#{name}_#{quantile}"]
          "#{full_name}{#{labels(row)},quantile=\"#{share}\"} #{seconds}\n" if seconds
        end
        "#{head(full_name, "gauge", help)}#{lines.join}"
      end

      private_class_method def self.head(name, type, help) = "# HELP #{name} #{help}\n# TYPE #{name} #{type}\n"

      private_class_method def self.labels(row) = "group=#{quoted(row.group)},topic=#{quoted(row.topic)}"

      private_class_method def self.quoted(text)
        "\"#{text.dup.force_encoding(Encoding::UTF_8).scrub.gsub(/[\\"\n]/, "\\" => "\\\\", "\"" => "\\\"", "\n" => "\\n")}\""
      end

      private

      def place_of(partition) = [partition.subscription.group.id, partition.topic]

      def row(place, partitions, lag)
        counts = @counts[place]
        gauges = [partitions.size, partitions.sum(&:in_work), partitions.sum(&:unfinished), partitions.sum(&:bytes)]
        AppMetrics.new(*place, *gauges, *COUNTERS.keys.map { |name| counts[name] },
                       lag, partitions.sum(&:lane_count), partitions.sum(&:uncommitted), *times(place)).freeze
      end

      def times(place)
        found = @times.key?(place) ? @times[place] : {}
        TIMES.keys.product(QUANTILES.values).map { |name, share| found[name]&.percentile(share, @clock.call) }
      end
    end
    private_constant :Metrics
  end
end
