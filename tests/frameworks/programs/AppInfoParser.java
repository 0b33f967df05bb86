package org.apache.kafka.common.utils;

/** Where connect-file 4.3, the newest in Maven Central, looks for a class that Kafka 4.4 has elsewhere. */
public final class AppInfoParser {
    private AppInfoParser() {}

    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }
}
