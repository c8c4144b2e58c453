# frozen_string_literal: true

# The constants that users cannot name, for tests: Internal::Client is Penstock::Native::Client, and Internal::Settings is
# Penstock::Settings. In any Ractor.
module Internal
  def self.const_missing(name)
    owner = [Penstock.const_get(:Native), Penstock].find { |room| room.const_defined?(name, false) }
    owner ? owner.const_get(name, false) : super
  end
end
