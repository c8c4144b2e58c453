# frozen_string_literal: true

require "logger"
require "penstock/app"

class ConsumerStorm
  # A member that is an application: it gets messages one by one, or in batches, in the order of partitions.
  class AppMember < Member
    ELSEWHERE = %i[bootstrap.servers group.id enable.auto.commit auto.commit.interval.ms].freeze
    STOPPING = 10 # seconds

    # Logs for its member.
    class Logging < Penstock::Processor
      def assigned = self.class.member.__send__(:log, :assigned, [partition])
      def revoked = self.class.member.__send__(:log, :revoked, [partition])
    end

    private

    def make_consumer = application(processor).start.then { |server| Closing.new(server) }

    # As a consumer's.
    Closing = Struct.new(:server) do
      def close = server.stop(timeout: STOPPING)
    end
    private_constant :Closing

    def consume(_server)
      sleep 0.05 until @stopped || Process.ppid != @parent
    end

    def processor
      member = self
      Class.new(Logging) do
        define_singleton_method(:member) { member }
        if member.batches?
          define_method(:process_batch) { |batch| member.work_on_messages(partition, batch.offsets, batch.payloads) }
        else
          define_method(:process) { |one| member.work_on_messages(partition, [one.offset], [one.payload]) }
        end
      end
    end

    def application(processor)
      Penstock.app do |app|
        app.kafka = { "bootstrap.servers": @kafka[:"bootstrap.servers"] }
        app.commit_interval = 0.3
        app.logger = Logger.new($stderr)
        app.monitor.subscribe("offsets.commit_failed") { |event| note_failed(event) }
        app.group(@kafka[:"group.id"], kafka: @kafka.except(*ELSEWHERE)) do |group|
          group.topic @topic, to: processor, **(batches? ? { batch: { size: LARGEST } } : {})
        end
      end
    end

    def note_failed(event)
      log(:timed_out, event[:offsets].fetch(@topic, {})) if TIMEOUTS.include?(event[:error].code)
    end

    public

    def batches? = @manual

    def work_on_messages(partition, offsets, payloads)
      foreign = payloads.find { |payload| payload.to_i != partition }
      raise "message #{foreign} came from partition #{partition}" if foreign

      ranges = offsets.slice_when { |one, other| other != one + 1 }.map { |run| [partition, run.first, run.last] }
      log(:got, ranges)
      sleep batches? ? WORK : WORK / 20
      log(:processed, ranges)
    end
  end
end
