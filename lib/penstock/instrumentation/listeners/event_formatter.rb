# frozen_string_literal: true

module Penstock
  module Listeners
    # Texts for events with any content: messages in events are as the caller gave them, and may be invalid. Calls no
    # method of unknown objects.
    # @api private
    module EventFormatter
      # Stands for the topics over the limit; not a valid topic name.
      OTHER = "(other)"

      # Of any object, a BasicObject too.

      module_function

      # @return [String] valid UTF-8 of at most that many characters
      def text(value, limit = 249)
        string = case value
                 when String then value
                 when Symbol then value.name
                 when Integer, Float, nil, true, false then value.to_s
                 when Module then value.name.to_s
                 else Kernel.instance_method(:class).bind_call(value).name.to_s
                 end
        string = string.byteslice(0, limit * 4).force_encoding(Encoding::UTF_8).scrub("?")
        string.size > limit ? "#{string[0, limit]}..." : string
      end

      # @param cut [Boolean] whether more bytes follow, so that the last character may be incomplete
      # @return [String] the bytes as text, or in hexadecimal digits if they are none
      def bytes(value, cut)
        string = value.dup.force_encoding(Encoding::UTF_8)
        whole = (0..(cut ? 3 : 0)).any? { |missing| string.byteslice(0, [string.bytesize - missing, 0].max).valid_encoding? }
        whole ? text(string) : "0x#{string.unpack1("H*")}"
      end

      # @return [String] a message's topic; "?": it has none
      def topic(message)
        text(known_topic(message))
      end

      # @return [Hash{String => Integer}] how many messages go to which topic
      def topics(messages)
        case messages
        when Array
          known = messages.map { |message| known_topic(message) }.tally
          known.each_with_object(Hash.new(0)) { |(topic, number), topics| topics[text(topic)] += number }
        else {}
        end
      end

      # @return [String, Symbol] a message's topic as it was given; "?": it has none
      def known_topic(message)
        case message
        when Hash
          topic = message.fetch(:topic, nil)
          case topic
          when String, Symbol then topic
          else "?"
          end
        else "?"
        end
      end

      # @return [String] an error's text, unless it makes it up when asked, and fails
      def message(error)
        text(Text.message(error), 1_000)
      end

      # @return [String] an error's code, else its class
      def code(error)
        case error
        when Error then text(error.code || error.class.name.to_s.split("::").last)
        else text(Kernel.instance_method(:class).bind_call(error).name.to_s.split("::").last)
        end
      end
    end
  end
end
