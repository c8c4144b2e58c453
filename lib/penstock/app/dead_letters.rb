# frozen_string_literal: true

require "penstock"

module Penstock
  class App
    # Reads a topic of dead letters, and sends them again. For `penstock dead-letters`.
    # @api private
    class DeadLetters
      # What {DeadLetter} has added, except the origin: if the message fails again, its first origin stays.
      REASONS = %w[source_attempts error_class error_message error_kind failed_at].freeze
      # Messages that are sent before the group commits.
      CHUNK = 500
      private_constant :REASONS, :CHUNK

      # A message in the topic.
      Letter = Struct.new(:message) do
        # @return [String]
        def place = "#{message.partition}/#{message.offset}"

        # @return [String, nil]
        def topic = header("source_topic")

        # @return [Integer, nil]
        def partition = header("source_partition")&.then { |text| Integer(text, 10, exception: false) }

        # @return [String, nil]
        def source = topic && [topic, header("source_partition"), header("source_offset")].join("/")

        # @return [String, nil]
        def group = header("source_consumer_group")

        # @return [String, nil] the name of a class
        def error = header("error_class")

        # @return [Time, nil]
        def failed_at = header("failed_at")&.then { |text| Time.at(Integer(text, 10) / 1000.0) if text.match?(/\A\d{1,15}\z/) }

        # A message may have a header several times.
        # @return [String, nil]
        def header(name) = Array(message.headers[name]).last

        # @return [Hash{Symbol => Object}]
        def to_h
          { place:, source:, group:, kind: header("error_kind"), error:, message: header("error_message"),
            attempts: header("source_attempts"), failed_at: failed_at&.utc&.strftime("%FT%TZ"), key: message.key }
        end
      end

      # What {#replay} has done.
      Replay = Struct.new(:sent, :left) # a number, and letters that have no topic to go to

      # @param topic [String]
      # @param kafka [Hash{Symbol => Object}]
      # @param group [String, nil] notes what was sent again; nil: the topic's name and "-replay"
      # @param timeout [Numeric] seconds until brokers have to say what there is to read
      def initialize(topic, kafka, group, timeout)
        @timeout = timeout
        @topic = topic
        @kafka = kafka
        @group = group || "#{topic}-replay"
      end

      # @param place [Array(Integer, Integer), nil] partition and offset; nil: all
      # @yieldparam letter [Letter]
      def each(place = nil, &)
        return read(@topic, from: :beginning, &) unless place

        partition, offset = place
        read({ @topic => [partition] }, from: offset, to: offset + 1, &)
      end

      # Sends messages to their source, and commits what was sent for the group. So the next call sends what came since.
      # @param to [String, nil] another topic
      # @param dry [Boolean] nothing is sent
      # @return [Replay]
      def replay(to: nil, dry: false)
        replay_from(->(&block) { read(@topic, from: :stored, &block) }, to, dry, commits: !dry)
      end

      # Only some, whether they were sent before or not; nothing is committed.
      # @param places [Array<Array(Integer, Integer)>] none: all
      # @yieldparam letter [Letter]
      # @yieldreturn [Boolean]
      # @return [Replay]
      def replay_some(places = [], to: nil, dry: false, &chosen)
        source = lambda do |&block|
          (places.empty? ? [nil] : places).each { |place| each(place) { |letter| block.call(letter) if chosen.call(letter) } }
        end
        replay_from(source, to, dry, commits: false)
      end

      private

      def read(topics, **options)
        reader = Reader.new(topics, timeout: @timeout, **options, **@kafka, "group.id": @group, "auto.offset.reset": "earliest")
        reader.each { |message| yield Letter.new(message) }
      end

      def replay_from(source, to, dry, commits:)
        result = Replay.new(0, [])
        clients(commits) do |producer, consumer|
          letters = Enumerator.new { |all| source.call { |letter| all << letter } }
          letters.each_slice(CHUNK) do |chunk|
            send_all(producer, chunk, to, result, dry)
            consumer&.commit(places_behind(chunk))
          end
        end
        result
      end

      def clients(commits)
        producer = Producer.new(**@kafka)
        consumer = Consumer.new(**@kafka, "group.id": @group) if commits
        yield producer, consumer
      ensure
        [producer, consumer].compact.each { |client| client.close(timeout: 5) }
      end

      def send_all(producer, chunk, to, result, dry)
        addressed, left = chunk.partition { |letter| to || (letter.topic && letter.topic != @topic) }
        messages = addressed.map { |letter| copy(producer, letter, to || letter.topic) }
        producer.produce_many_sync(messages) unless dry || messages.empty?
        result.sent += messages.size
        result.left.concat(left)
      end

      # Where it was, so that it stays with the other messages of its key.
      def copy(producer, letter, topic)
        message = letter.message
        own = topic == letter.topic && letter.partition
        partition = own if own && own < (producer.partition_count(topic) || 0)
        more = { key: message.key, partition: }.compact
        { topic:, payload: message.payload, headers: message.headers.except(*REASONS), **more }
      end

      def places_behind(chunk)
        last = chunk.group_by { |letter| letter.message.partition }
        { @topic => last.transform_values { |letters| letters.last.message.offset + 1 } }
      end
    end
    private_constant :DeadLetters
  end
end
