# frozen_string_literal: true

module Penstock
  module Listeners
    # The numbers of applications, as the event "app.metrics" brings them, by group and topic.
    # @api private
    module AppNumbers
      # Members of AppMetrics that only grow, and what they count.
      COUNTERS = { processed: "Messages of applications that are finished.", failed: "Calls of processors that have raised.",
                   retried: "Calls of processors that are tried again.", skipped: "Messages that were skipped.",
                   dead_letters: "Copies in dead-letter topics.", seconds: "Seconds that workers have been busy." }.freeze
      GAUGES = { partitions: "Assigned partitions of applications.", in_work: "Pieces of work that workers have.",
                 waiting: "Messages that are polled and not finished.", waiting_bytes: "Their bytes.",
                 lag: "Messages that are not finished, to the end of the partitions.", lanes: "Lanes that have messages.",
                 uncommitted: "Messages that are finished and not committed." }.freeze
      TIMES = { wait: "Seconds from the poll of a message until its piece of work begins.",
                work: "Seconds that the processing of a message takes." }.freeze
      QUANTILES = { p50: "0.5", p99: "0.99" }.freeze

      # @param apps [Array] what this has returned before: the process, and rows by group and topic
      # @param event [Event]
      # @return [Array] with the latest rows; a fork child begins anew
      def self.merge(apps, event)
        rows = event.payload[:metrics].to_h { |row| [[row.group, row.topic], row] }
        pid, former = apps
        [Process.pid, pid == Process.pid ? former.merge(rows) : rows]
      end

      # @param apps [Array] see {merge}
      # @return [Hash{String => Hash{Hash => Numeric}}] values by name and labels, for Prometheus
      def self.series(apps)
        pid, rows = apps
        return {} unless pid == Process.pid

        rows.each_with_object(Hash.new { |all, name| all[name] = {} }) do |((group, topic), row), series|
          labels = { "group" => EventFormatter.text(group), "topic" => EventFormatter.text(topic) }
          sum([row]).each do |member, number|
            name, more = named(member)
            series[name][{ **labels, **more }] = number
          end
        end
      end

      # For StatsD.
      # @param event [Event]
      # @param former [Hash] counters of the latest call
      # @param label [#call] makes the tag of a topic; nil: none
      # @yieldparam name [String]
      # @yieldparam number [Numeric] a value, or by how much it has grown
      # @yieldparam tags [Array<Symbol, String>]
      # @yieldparam grows [Boolean]
      def self.each_change(event, former, label)
        event.payload[:metrics].group_by { |row| [row.group, label.call(row.topic)] }.each do |(group, topic), rows|
          tags = [:group, EventFormatter.text(group), *([:topic, EventFormatter.text(topic)] if topic)]
          sum(rows).each do |member, number|
            grows = COUNTERS.key?(member)
            number = growth(former, [member, tags], number) if grows
            yield "app.#{member.to_s.sub(/_(?=p\d+\z)/, ".")}", number, tags, grows
          end
        end
      end

      # A new application begins at zero.
      private_class_method def self.growth(former, key, number)
        before = former.fetch(key, 0)
        former[key] = number
        number < before ? number : number - before
      end

      private_class_method def self.named(member)
        name, quantile = member.to_s.split(/_(?=p\d+\z)/)
        return ["app_#{name}_seconds", { "quantile" => QUANTILES.fetch(quantile.to_sym) }] if quantile

        ["app_#{name}#{"_total" if COUNTERS.key?(member)}", {}]
      end

      # Of topics with the same label.
      # @param rows [Array<AppMetrics>]
      # @return [Hash{Symbol => Numeric}] without what is not known
      def self.sum(rows)
        added = [*COUNTERS.keys, *GAUGES.keys].to_h { |name| [name, rows.filter_map(&name)] }
        longest = TIMES.keys.product(QUANTILES.keys).to_h do |name, quantile|
          member = :"#{name}_#{quantile}"
          [member, rows.filter_map(&member)]
        end
        added.reject { |_, all| all.empty? }.transform_values(&:sum)
             .merge(longest.reject { |_, all| all.empty? }.transform_values(&:max))
      end
    end
  end
end
