# frozen_string_literal: true

module Penstock
  # What an application has done with a topic of a group, and what it has now: {App::Server#metrics}. Frozen.
  #
  # - `group`, `topic`
  # - `partitions`: assigned now
  # - `in_work`: pieces of work that workers have now, each with one message, some of a lane, or a batch
  # - `waiting`, `waiting_bytes`: messages that are polled and not finished, and what they take in memory. Messages that were
  #   polled together take it until the last one is finished
  # - `processed`: messages that are finished, whatever has become of them
  # - `failed`: calls of processors that have raised; `retried`: those that are, or were, tried again
  # - `skipped`, `dead_letters`: messages
  # - `seconds`: how long workers have been busy
  AppMetrics = Struct.new(:group, :topic, :partitions, :in_work, :waiting, :waiting_bytes,
                          :processed, :failed, :retried, :skipped, :dead_letters, :seconds)

  class App
    # Counts for {AppMetrics}. Of the loop's thread; {#latest} is for any.
    # @api private
    class Metrics
      COUNTERS = { processed: "messages that are finished", failed: "calls of processors that have raised",
                   retried: "calls that are tried again", skipped: "messages that were skipped",
                   dead_letters: "copies in dead-letter topics", seconds: "seconds that workers have been busy" }.freeze
      GAUGES = { partitions: "assigned partitions", in_work: "pieces of work that workers have",
                 waiting: "messages that are polled and not finished", waiting_bytes: "their bytes" }.freeze
      private_constant :COUNTERS, :GAUGES

      # @return [Array<AppMetrics>] frozen, of at most a second ago
      attr_reader :latest

      def initialize
        @counts = Hash.new { |counts, place| counts[place] = Hash.new(0) }
        @latest = [].freeze
      end

      # @param partition [Partition]
      # @param name [Symbol] of a counter
      def add(partition, name, count = 1) = @counts[[partition.subscription.group.id, partition.topic]][name] += count

      # @param work [Work] has run
      def settled(work)
        add(work.partition, :processed, work.slices.sum(&:done))
        add(work.partition, :seconds, work.seconds)
      end

      # @param subscriptions [Array<Subscription>]
      def publish(subscriptions)
        partitions = subscriptions.flat_map(&:partitions).group_by { |one| [one.subscription.group.id, one.topic] }
        @latest = (@counts.keys | partitions.keys).sort.map { |place| row(place, partitions.fetch(place, [])) }.freeze
      end

      # @param rows [Array<AppMetrics>]
      # @return [String] in Prometheus' text format
      def self.to_prometheus(rows)
        [*GAUGES.map { |name, help| family(rows, name, "gauge", "penstock_app_#{name}", help) },
         *COUNTERS.map { |name, help| family(rows, name, "counter", "penstock_app_#{name}_total", help) }].join
      end

      private_class_method def self.family(rows, name, type, full_name, help)
        lines = rows.map { |row| "#{full_name}{group=#{quoted(row.group)},topic=#{quoted(row.topic)}} #{row[name]}\n" }
        "# HELP #{full_name} #{help}\n# TYPE #{full_name} #{type}\n#{lines.join}"
      end

      private_class_method def self.quoted(text)
        "\"#{text.dup.force_encoding(Encoding::UTF_8).scrub.gsub(/[\\"\n]/, "\\" => "\\\\", "\"" => "\\\"", "\n" => "\\n")}\""
      end

      private

      def row(place, partitions)
        counts = @counts[place]
        gauges = [partitions.size, partitions.sum(&:in_work), partitions.sum(&:unfinished), partitions.sum(&:bytes)]
        AppMetrics.new(*place, *gauges, *COUNTERS.keys.map { |name| counts[name] }).freeze
      end
    end
    private_constant :Metrics
  end
end
