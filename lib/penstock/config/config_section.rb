# frozen_string_literal: true

module Penstock
  # A configuration, or a group of settings in one. Each setting is declared once:
  #
  #     # How long a close waits.
  #     # @return [Integer]
  #     setting :close_timeout, milliseconds(0..), default: 30_000
  #
  # The declaration makes the accessors and the default. {ConfigChecks#check_settings} checks the value. The table in
  # docs/configuration.md is made from the declaration and its comment (`rake docs:configuration`).
  # @api private
  class ConfigSection
    include AsJson

    class << self
      private

      # @return [Array<Setting>] in the order of their declarations; frozen
      def settings = @settings || []

      # @return [Hash{Symbol => Class}] the groups of settings by name; frozen
      def groups = @groups || {}

      # @!macro [attach] setting
      #   @!attribute [rw] $1
      #   @note Declared by `$*`.
      def setting(name, values, default: nil)
        @settings = Ractor.make_shareable([*settings, Setting.new(name, values, default)])
        attr_accessor name
      end

      # @!macro [attach] group
      #   @!attribute [r] $1
      def group(name, section)
        @groups = Ractor.make_shareable({ **groups, name => section })
        attr_reader name
      end

      def milliseconds(among, **meanings) = Setting::Integers.new(among, unit: "ms", **meanings)
      def bytes(among, **meanings) = Setting::Integers.new(among, unit: "bytes", **meanings)
      def integers(among) = Setting::Integers.new(among)
      def boolean = Setting::Choice.new([true, false])
      def one_of(*choices) = Setting::Choice.new(choices)
      def object_with(method, type, expected) = Setting::Objects.new(type, method, expected)
      def checked_values(*types) = Setting::Values.new(types)
    end

    # All settings have their defaults.
    def initialize
      settings.each { |setting| instance_variable_set(:"@#{setting.name}", setting.default.dup) }
      groups.each { |name, section| instance_variable_set(:"@#{name}", section.new) }
    end

    # Freezes its groups too.
    def freeze
      groups.each_key { |name| public_send(name).freeze }
      super
    end

    private

    def settings = self.class.__send__(:settings)
    def groups = self.class.__send__(:groups)

    # @yieldparam name [String] such as "polling.fd.max_time"
    # @yieldparam setting [Setting]
    # @yieldparam value [Object]
    def each_setting(prefix = "", &block)
      settings.each { |setting| yield "#{prefix}#{setting.name}", setting, public_send(setting.name) }
      groups.each_key { |name| public_send(name).__send__(:each_setting, "#{prefix}#{name}.", &block) }
    end
  end
end
