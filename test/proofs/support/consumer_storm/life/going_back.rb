# frozen_string_literal: true

class ConsumerStorm
  class Life
    # Rewinding and seeking. A program that does both from several threads has to order them: a seek forward skips messages.
    module GoingBack
      private

      def moving(&block)
        return yield unless @seeks

        Thread.handle_interrupt(Object => :never) { @moves.synchronize(&block) }
      end

      # The work fails at a message: what precedes it is processed, the rest has to come again.
      # @return [Boolean] see Life#settle
      def fail_at(worker, job, index)
        done = job.messages.first(index)
        return go_back(job) if index.zero? || !work(worker)

        log(:processed, [job.number, ranges_of(done)])
        failed = job.messages.drop(index).group_by(&:partition).transform_values(&:first)
        last = done.group_by(&:partition).transform_values(&:last)
        mark_last(job, last) if (first = worker.random.rand(2).zero?)
        went_back = failed.values.all? { |message| go_back(job, message) }
        mark_last(job, last) unless first
        went_back
      end

      def mark_last(job, messages)
        messages.each { |partition, message| marked(job, job.upto(partition, message.offset)) { consumer.mark(message) } }
      end

      # @param what [Penstock::Message] nil: the whole batch
      # @return [Boolean] whether it has been done, or others have got the partitions
      def go_back(job, what = nil)
        places = what ? { what.partition => what.offset } : job.by_partition.transform_values { |list| list.first.offset }
        moving do
          went = noting(:rewinding, :rewound, places) { repeated { consumer.rewind(what || job.what) } }
          seek_from(job, places) if went && @seeks && @random.rand(3).zero?
        end
        true
      rescue Penstock::ConsumerClosedError
        raise
      rescue Penstock::ConsumeError => e
        log(:error, e.code)
        false
      end

      # An interrupted rewind is done later. The one that ends then forbids it.
      def repeated
        result = nil
        3.times { result.nil? ? free { result = yield } : break }
        result.nil? ? yield : result
      end

      # Further back than the rewind. Not if the partition was taken away: another member is perhaps not so far yet.
      def seek_from(job, places)
        partition, offset = places.to_a.sample(random: @random)
        return if consumer.revoked?(job.what)

        commit = @random.rand(4).zero?
        offset = [offset, consumer.committed(@topic, [partition])[partition] || 0].min if commit
        target = [offset - @random.rand(20), 0].max
        kinds = commit ? %i[falling fell] : %i[seeking sought]
        noting(*kinds, { partition => target }) { consumer.seek(@topic, partition, target, commit:) && true }
      end

      # @yieldreturn the result
      def noting(before, after, places)
        number = next_number
        log(before, [number, places])
        result = nil
        result = yield
      ensure
        log(after, [number, places, result])
      end
    end
  end
end
