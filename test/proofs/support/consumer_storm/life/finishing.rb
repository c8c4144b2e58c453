# frozen_string_literal: true

class ConsumerStorm
  class Life
    # What a thread does with a batch that it has processed.
    module Finishing
      private

      def finish(worker, job)
        total = worker.random.rand(@finish.values.sum)
        name, = @finish.find { |_, weight| (total -= weight).negative? }
        __send__(:"finish_#{name}", job)
      end

      def finish_again(_job) = nil

      def finish_mark(job) = marked(job, job.ranges) { consumer.mark(job.what) }

      def finish_mark_messages(job) = mark_last(job, job.by_partition.transform_values(&:last))

      # Some of the messages first.
      def finish_mark_halves(job)
        middle = job.messages[job.messages.size / 2]
        marked(job, job.upto(middle.partition, middle.offset)) { consumer.mark(middle) }
        finish_mark(job)
      end

      def finish_mark_and_commit(job)
        finish_mark(job)
        commit_all
      end

      def finish_mark_and_commit_async(job)
        finish_mark(job)
        commit_all(async: true)
      end

      def finish_commit(job) = marked(job, job.ranges, :commit) { consumer.commit(job.what, timeout: 10) }

      def finish_commit_async(job) = marked(job, job.ranges, :commit_async) { consumer.commit(job.what, async: true) }

      def finish_commit_messages(job)
        job.by_partition.each do |partition, list|
          marked(job, job.upto(partition, list.last.offset), :commit) { consumer.commit(list.last, timeout: 10) }
        end
      end

      # A call that was interrupted may have marked the messages.
      def marked(job, ranges, method = :mark, &call)
        begun = now
        result = method == :commit ? committing(ranges.map(&:first).uniq, &call) : attempt(&call)
        log(:marked, [job.number, ranges, result, begun, !job.tried, method]) unless result.nil?
        job.tried = true if result.nil?
      end

      # With config.mark = :next_poll it says that all is processed that was polled.
      def commit_all(async: false)
        kinds = @manual ? %i[committing committed] : %i[declaring declared]
        committing(nil, *kinds, async:) { consumer.commit(async:, timeout: 10) }
      end

      # @param partitions [Array<Integer>, nil] nil: all
      def committing(partitions, before = :committing, after = :committed, async: false, &call)
        number = next_number
        log(before, [number, partitions])
        result = nil
        result = attempt(&call)
      ensure
        log(after, [number, result && !async])
      end

      # @return [Boolean, nil] nil: it was interrupted, or is not possible now
      def attempt
        result = nil
        free { result = yield }
        result
      rescue Penstock::CommitError, Penstock::ConsumeTimeoutError => e
        log(:not_committed, e.code)
        nil
      end
    end
  end
end
