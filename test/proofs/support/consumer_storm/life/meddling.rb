# frozen_string_literal: true

class ConsumerStorm
  class Life
    # What the thread that has made the consumer does to the others.
    module Meddling
      DISTURBANCES = {
        interrupt_one: 4, interrupt_all: 2, kill_one: 1, pause: 2, resume: 4, commit: 2, keep_alive: 1, fall: 1
      }.freeze
      private_constant :DISTURBANCES

      private

      def disturb_until_it_ends
        until over?
          disturb
          Thread.handle_interrupt(Object => :never) { start_threads }
          sleep @random.rand(@every)
        end
        @over = true
        living.each { |thread| thread.raise(Interrupted) if @random.rand(3).zero? }
        join_threads
        close
      end

      def disturb
        total = @random.rand(DISTURBANCES.values.sum)
        name, = DISTURBANCES.find { |_, weight| (total -= weight).negative? }
        __send__(:"disturb_#{name}")
      rescue Penstock::ConsumerClosedError
        raise
      rescue Penstock::ConsumeError => e
        log(:error, e.code)
      end

      def living = living_threads.keys

      def disturb_interrupt_one = living.sample(random: @random)&.raise(Interrupted)

      def disturb_interrupt_all = living.each { |thread| thread.raise(Interrupted) }

      def disturb_kill_one = living.sample(random: @random)&.kill

      def disturb_pause
        partitions = consumer.assignment.fetch(@topic, [])
        consumer.pause(@topic => partitions.sample(1 + @random.rand(2), random: @random)) if partitions.any?
      end

      def disturb_resume = consumer.resume

      def disturb_commit = @manual && commit_all(async: @random.rand(2).zero?)

      def disturb_keep_alive = consumer.keep_alive { sleep @random.rand(0.05) }

      # A program's own offsets may be lower than what is committed.
      def disturb_fall = @seeks && moving { lower_committed }

      def lower_committed
        partition = consumer.assignment.fetch(@topic, []).sample(random: @random) or return
        offset = consumer.committed(@topic, [partition])[partition] or return
        offset = [offset - @random.rand(20), 0].max
        noting(:falling, :fell, { partition => offset }) { consumer.commit({ @topic => { partition => offset } }, timeout: 10) }
      end

      def close
        log(:closing, @auto_commit)
        start = now
        report = consumer.close
        log(:closed, [report.complete?, now - start])
      end
    end
  end
end
