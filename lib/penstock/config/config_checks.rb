# frozen_string_literal: true

module Penstock
  # Checks that the configurations of producers and consumers share.
  # @api private
  module ConfigChecks
    private

    # Logs a warning about a setting that works, but probably not as intended. Without a logger, on stderr.
    # @param sentence [String]
    def log_warning(sentence)
      line = Text.printable("[#{id}] #{sentence}")
      logger ? logger.add(2, line, "penstock") : warn("penstock: #{line}")
    end

    # The keywords are librdkafka's settings. The settings of Penstock are set in the block.
    def begin_with(kafka)
      own = kafka.each_key.find { |name| name.to_s.match?(/\A\w+\z/) && own?(name.to_s) }
      raise_invalid("config.#{own} is not a setting of librdkafka: set it in the block") if own

      @kafka = kafka
    end

    def own?(name) = respond_to?("#{name}=") || groups.key?(name.to_sym)

    def check(name, value, expected)
      return if yield

      raise_invalid("config.#{name} must be #{expected}, not #{shown(value)}")
    end

    def raise_invalid(text) = raise(ErrorFactory.build(ConfigurationInvalidError, text))

    # A value may be a password or a key in the wrong place. So errors repeat only numbers, Symbols, and values from a small
    # set.
    def shown(value)
      case value
      when nil, true, false, Numeric, Symbol, Module, "" then value.inspect
      when String then shown_text(value)
      else "a value of the class #{value.class}"
      end
    end

    def shown_text(value)
      return value.inspect if value.b.match?(/\A[-+]?\d[\d._]{0,15}\z/)

      Settings.pem?(value) ? "one that looks like a key or certificate" : "a value of the class String"
    end

    def shown_name(name)
      text = name.inspect
      Settings.pem?(text) ? "one that looks like a key or certificate" : text
    end

    # Checks the values of all settings by their declarations.
    def check_settings
      each_setting do |name, setting, value|
        next if setting.values.valid?(value)

        raise_invalid("config.#{name} must be #{setting.values.expected(value)}, not #{shown(value)}#{hint(name, value)}")
      end
    end

    # @return [String] what may be meant
    def hint(_name, _value) = ""

    def check_id
      check("id", id, "a non-empty UTF-8 String without a zero byte") { Settings.text?(id) && !id.empty? }
    end

    # A shorter time is more likely a number of seconds.
    SHORTEST_MS = 100
    private_constant :SHORTEST_MS

    def warn_of_short_times(times = { close_timeout:, rejection_timeout: })
      times.each do |name, value|
        next unless value&.between?(1, SHORTEST_MS - 1)

        log_warning("config.#{name} is #{value} ms. If you mean #{value} seconds, write #{value}_000")
      end
    end

    def check_unreachable_timeout_has_effect
      name = %i[delivery.timeout.ms message.timeout.ms].find { |each| kafka.key?(each) } or return
      limit = Integer(kafka[name], exception: false)
      return unless limit&.positive? && unreachable_timeout >= limit

      log_warning("config.unreachable_timeout (#{unreachable_timeout} ms) has no effect: it must be below #{name} (#{limit})")
    end

    def check_kafka
      check("kafka", kafka.class, "a Hash") { kafka.is_a?(Hash) }
      check_names(kafka.keys)
      kafka.each do |name, value|
        next if !value.is_a?(String) || Settings.text?(value)

        raise_invalid("config.kafka: #{name} must be UTF-8 without a zero byte")
      end
    end

    # config.c checks names too late: Ruby makes Symbols of them before.
    def check_names(names)
      names.each do |name|
        next if (name.is_a?(Symbol) || name.is_a?(String)) && Settings.text?(name.to_s)

        wrong = name.respond_to?(:to_sym) ? "in UTF-8 without a zero byte, not #{shown_name(name)}" : "not #{name.class}"
        raise_invalid("config.kafka: the names of settings must be Symbols or Strings, #{wrong}")
      end
      twice = names.map(&:to_sym).tally.key(2)
      raise_invalid("config.kafka: #{twice} is set twice, as a Symbol and as a String") if twice
    end

    # @param effective [Hash] config.kafka with the defaults of Penstock
    # @return [Hash{Symbol => Object}] frozen, with a {Secret} in place of each secret value
    def checked(effective, **how)
      BootstrapServers.check(effective)
      settings = effective.to_h { |name, value| [name, Settings.hide(name, pem(name, value))] }.freeze
      given = settings.slice(*kafka.keys.map(&:to_sym))
      KafkaChecks.new(given, settings, **how).call.each { |sentence| log_warning("config.kafka: #{sentence}") }
      settings
    end

    # An environment variable may contain it in one line.
    def pem(name, value)
      name.end_with?(".pem") && value.is_a?(String) && !value.include?("\n") ? value.gsub("\\n", "\n") : value
    end

    # @return [Hash{Symbol=>Object}] config.kafka with the defaults for settings that it does not set under any name
    def with_defaults(defaults)
      given = Settings.by_symbols(kafka)
      set = given.keys.map { |name| Settings.proper(name) }
      defaults.reject { |name, _| set.include?(Settings.proper(name)) }.merge(given)
    end
  end
end
